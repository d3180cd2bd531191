"""A read whose bytes lie in the store: it was decided without waiting, and is fetched by awaiting it."""

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from ...model.outcomes import Refused

T_co = TypeVar("T_co", covariant=True)


class Deferred(Generic[T_co]):
    """What a read will come to. Whoever loses interest cancels the `get`, and nobody else's."""

    __slots__ = ("_fetch",)

    def __init__(self, fetch: Callable[[], Awaitable[T_co | Refused]]) -> None:
        self._fetch = fetch

    async def get(self) -> T_co | Refused:
        """Fetch it. What is wrong with the store is raised."""
        return await self._fetch()
