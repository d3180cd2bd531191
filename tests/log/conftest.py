"""Fixtures of the tests of the log."""

import pytest


@pytest.fixture
def anyio_backend() -> str:
    """Tests marked with `anyio` run in an event loop of asyncio."""
    return "asyncio"
