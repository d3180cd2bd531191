"""The asynchronous shell: the same actions, awaited."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Mapping
from contextlib import closing
from copy import copy
from functools import update_wrapper
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import httpx

from .errors import error_of_transport
from .options import AsyncText, awaited_extras
from .steps import Action, Answer, Call, Flow, Item, Open, Receive, Request, Run, Sleep, Steps, about
from .transport import Wiring

T = TypeVar("T")
P = ParamSpec("P")
TargetT = TypeVar("TargetT")


class AwaitingShell:
    """Connections to one server."""

    def __init__(self, wiring: Wiring, http: httpx.AsyncClient | None = None) -> None:
        self.wiring = wiring
        self.http = http or httpx.AsyncClient(**wiring.client_options())

    async def request(self, request: Request) -> httpx.Request:
        """A request as httpx sends it, with the options of this moment."""
        return self.wiring.request(request, await awaited_extras(self.wiring.options))

    async def run(self, steps: Steps[T]) -> T:
        """What an operation returns."""
        run = Run(steps)
        async with Conversation(self) as conversation:
            with closing(run):
                while not run.done:
                    await conversation.advance(run)
        return run.result

    async def iterate(self, flow: Flow[T]) -> AsyncGenerator[T, None]:
        """What an operation gives out, one by one."""
        run = Run(flow)
        async with Conversation(self) as conversation:
            with closing(run):
                while not run.done:
                    if isinstance(run.action, Item):
                        yield run.action.value
                        run.tell(None)
                    else:
                        await conversation.advance(run)


class Awaiting:
    """Something on a server that is reached through a shell."""

    shell: AwaitingShell

    def with_options(
        self, *, headers: Mapping[str, AsyncText] | None = None, params: Mapping[str, AsyncText] | None = None
    ) -> Self:
        """The same, but its requests carry these headers and query parameters too."""
        other = copy(self)
        other.shell = AwaitingShell(self.shell.wiring.plus(headers, params), self.shell.http)
        return other


class Conversation:
    """The one answer that an operation has open, if any."""

    def __init__(self, shell: AwaitingShell) -> None:
        self._shell = shell
        self._open: httpx.Response | None = None
        self._pieces: AsyncIterator[bytes] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._hang_up()

    async def advance(self, run: Run[Any]) -> None:
        """Perform the action that an operation wants, and tell it what came of that."""
        try:
            outcome = await self._perform(run.action)
        except httpx.RequestError as error:
            await self._hang_up()
            run.fail(error_of_transport(error))
        else:
            run.tell(outcome)

    async def _perform(self, action: Action) -> object:
        if isinstance(action, Call):
            response = await self._shell.http.send(await self._shell.request(action.request))
            return Answer(response.status_code, response.headers, response.content)
        if isinstance(action, Open):
            return await self._begin(await self._shell.request(action.request))
        if isinstance(action, Receive):
            return b"" if self._pieces is None else await anext(self._pieces, b"")
        if isinstance(action, Sleep):
            await asyncio.sleep(action.seconds)
            return None
        return await asyncio.to_thread(action.function)

    async def _begin(self, request: httpx.Request) -> Answer:
        await self._hang_up()
        response = self._open = await self._shell.http.send(request, stream=True)
        if response.status_code >= 300:
            return Answer(response.status_code, response.headers, await response.aread())
        self._pieces = response.aiter_bytes()
        return Answer(response.status_code, response.headers)

    async def _hang_up(self) -> None:
        if self._open is not None:
            await self._open.aclose()
            self._open, self._pieces = None, None


def awaiting(
    operation: Callable[Concatenate[TargetT, P], Steps[T]],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """A method that runs an operation on its object."""

    def method(target: Any, /, *arguments: P.args, **named: P.kwargs) -> Coroutine[Any, Any, T]:
        shell: AwaitingShell = target.shell
        return shell.run(about(target.path, operation(target, *arguments, **named)))

    update_wrapper(method, operation)
    return method


def iterating(
    operation: Callable[Concatenate[TargetT, P], Flow[T]],
) -> Callable[Concatenate[Any, P], AsyncGenerator[T, None]]:
    """A method that gives out what an operation on its object finds."""

    def method(target: Any, /, *arguments: P.args, **named: P.kwargs) -> AsyncGenerator[T, None]:
        shell: AwaitingShell = target.shell
        return shell.iterate(about(target.path, operation(target, *arguments, **named)))

    update_wrapper(method, operation)
    return method
