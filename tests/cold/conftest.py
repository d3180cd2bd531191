"""The one S3 server of all tests of the store."""

from collections.abc import Iterator

import pytest
from tests.cold.seaweed import Seaweed


@pytest.fixture(scope="session")
def seaweed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seaweed]:
    """An S3 server with no buckets, shared by all tests that do not stop it."""
    with Seaweed(tmp_path_factory.mktemp("seaweed")) as running:
        yield running
