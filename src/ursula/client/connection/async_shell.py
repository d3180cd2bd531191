"""The asynchronous shell: performs the actions of operations over httpx, and awaits each."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Mapping
from contextlib import closing
from copy import copy
from functools import update_wrapper
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import httpx

from ..errors import error_of_transport
from .request_options import AsyncText, resolve_async
from .steps import (
    Action,
    Answer,
    Call,
    Flow,
    Item,
    Open,
    OperationRun,
    Receive,
    Request,
    Sleep,
    Steps,
    with_error_path,
)
from .transport import Endpoint

T = TypeVar("T")
P = ParamSpec("P")
TargetT = TypeVar("TargetT")


class AsyncShell:
    """Runs operations against one server, over persistent connections."""

    def __init__(self, endpoint: Endpoint, http: httpx.AsyncClient | None = None) -> None:
        self.endpoint = endpoint
        self.http = http or httpx.AsyncClient(**endpoint.httpx_options())

    async def request(self, request: Request) -> httpx.Request:
        """A request as httpx sends it, with the caller's options as they are now."""
        return self.endpoint.httpx_request(request, await resolve_async(self.endpoint.options))

    async def run(self, steps: Steps[T]) -> T:
        """Run an operation and return its result."""
        run = OperationRun(steps)
        async with AsyncDriver(self) as driver:
            with closing(run):
                while not run.done:
                    await driver.advance(run)
        return run.result

    async def iterate(self, flow: Flow[T]) -> AsyncGenerator[T, None]:
        """Run an operation and yield its items."""
        run = OperationRun(flow)
        async with AsyncDriver(self) as driver:
            with closing(run):
                while not run.done:
                    if isinstance(run.action, Item):
                        yield run.action.value
                        run.resume(None)
                    else:
                        await driver.advance(run)


class AsyncDriver:
    """Performs the actions of one operation, and holds its open response, if any."""

    def __init__(self, shell: AsyncShell) -> None:
        self._shell = shell
        self._open: httpx.Response | None = None
        self._pieces: AsyncIterator[bytes] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close_answer()

    async def advance(self, run: OperationRun[Any]) -> None:
        """Perform the action that an operation needs next, and resume it with the outcome."""
        try:
            outcome = await self._perform(run.action)
        except httpx.RequestError as error:
            await self._close_answer()
            run.fail(error_of_transport(error))
        else:
            run.resume(outcome)

    async def _perform(self, action: Action) -> object:
        if isinstance(action, Call):
            response = await self._shell.http.send(await self._shell.request(action.request))
            return Answer(response.status_code, response.headers, response.content)
        if isinstance(action, Open):
            return await self._open_answer(await self._shell.request(action.request))
        if isinstance(action, Receive):
            return b"" if self._pieces is None else await anext(self._pieces, b"")
        if isinstance(action, Sleep):
            await asyncio.sleep(action.seconds)
            return None
        return await asyncio.to_thread(action.function)

    async def _open_answer(self, request: httpx.Request) -> Answer:
        await self._close_answer()
        response = self._open = await self._shell.http.send(request, stream=True)
        if response.status_code >= 300:
            return Answer(response.status_code, response.headers, await response.aread())
        self._pieces = response.aiter_bytes()
        return Answer(response.status_code, response.headers)

    async def _close_answer(self) -> None:
        if self._open is not None:
            await self._open.aclose()
            self._open, self._pieces = None, None


class AsyncHandle:
    """A stream or bucket whose operations run in an asynchronous shell."""

    shell: AsyncShell

    def with_options(
        self, *, headers: Mapping[str, AsyncText] | None = None, params: Mapping[str, AsyncText] | None = None
    ) -> Self:
        """The same stream or bucket, with these headers and query parameters added to its requests."""
        other = copy(self)
        other.shell = AsyncShell(self.shell.endpoint.plus(headers, params), self.shell.http)
        return other


def async_method(
    operation: Callable[Concatenate[TargetT, P], Steps[T]],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """A method that runs an operation on its object and returns the result."""

    def method(target: Any, /, *arguments: P.args, **named: P.kwargs) -> Coroutine[Any, Any, T]:
        shell: AsyncShell = target.shell
        return shell.run(with_error_path(target.path, operation(target, *arguments, **named)))

    update_wrapper(method, operation)
    return method


def async_iterator(
    operation: Callable[Concatenate[TargetT, P], Flow[T]],
) -> Callable[Concatenate[Any, P], AsyncGenerator[T, None]]:
    """A method that runs an operation on its object and yields its items."""

    def method(target: Any, /, *arguments: P.args, **named: P.kwargs) -> AsyncGenerator[T, None]:
        shell: AsyncShell = target.shell
        return shell.iterate(with_error_path(target.path, operation(target, *arguments, **named)))

    update_wrapper(method, operation)
    return method
