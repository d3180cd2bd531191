"""The asynchronous client in the clothes of the blocking one, so that one test is run over both."""

import asyncio
import inspect
from collections.abc import AsyncGenerator, Iterator
from typing import Any, cast

from ursula.client import AsyncBucket, AsyncClient, AsyncProducer, AsyncStream, AsyncTail, Client

WRAPPED = (AsyncBucket, AsyncClient, AsyncProducer, AsyncStream, AsyncTail)


def driven(client: AsyncClient, loop: asyncio.AbstractEventLoop) -> Client:
    """A client whose calls run the loop until they are done."""
    return cast(Client, Driven(client, loop))


class Driven:
    """An object whose coroutines are awaited and whose asynchronous iterators are iterated for the caller."""

    def __init__(self, inner: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._inner = inner
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        if name == "close" and isinstance(self._inner, AsyncTail):
            name = "aclose"
        found = getattr(self._inner, name)
        if not callable(found):
            return found
        return lambda *arguments, **named: self._finished(found(*arguments, **named))

    def __enter__(self) -> "Driven":
        self._loop.run_until_complete(self._inner.__aenter__())
        return self

    def __exit__(self, *error: Any) -> None:
        self._loop.run_until_complete(self._inner.__aexit__(*error))

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        nothing = object()
        item = self._loop.run_until_complete(_next(self._inner, nothing))
        if item is nothing:
            raise StopIteration
        return item

    def result(self) -> Any:
        """As a future of the blocking producer has it."""
        return self._loop.run_until_complete(self._inner)

    def _finished(self, outcome: Any) -> Any:
        if inspect.iscoroutine(outcome):
            outcome = self._loop.run_until_complete(outcome)
        if inspect.isasyncgen(outcome):
            return self._iterated(outcome)
        is_object = isinstance(outcome, WRAPPED) or asyncio.isfuture(outcome)
        return Driven(outcome, self._loop) if is_object else outcome

    def _iterated(self, items: AsyncGenerator[Any, Any]) -> Iterator[Any]:
        nothing = object()
        try:
            while (item := self._loop.run_until_complete(_next(items, nothing))) is not nothing:
                yield item
        finally:
            self._loop.run_until_complete(items.aclose())


async def _next(items: Any, nothing: object) -> Any:
    return await anext(items, nothing)
