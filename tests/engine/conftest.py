"""Tests that are coroutines run on asyncio, each on a loop of its own."""

import pytest


@pytest.fixture
def anyio_backend() -> str:
    """The server runs on asyncio alone."""
    return "asyncio"
