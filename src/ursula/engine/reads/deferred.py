"""A read whose bytes are in the store: it was decided without waiting, and awaiting it fetches the bytes."""

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from ...model.outcomes import Refused

T_co = TypeVar("T_co", covariant=True)


class Deferred(Generic[T_co]):
    """The result of a read, to be fetched. Cancelling one `get` does not cancel another."""

    __slots__ = ("_fetch",)

    def __init__(self, fetch: Callable[[], Awaitable[T_co | Refused]]) -> None:
        self._fetch = fetch

    async def get(self) -> T_co | Refused:
        """Fetch the result. Raises StoreFailed if the store fails."""
        return await self._fetch()
