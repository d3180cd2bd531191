"""The blocking shell: performs the actions of operations over httpx, one after the other."""

import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from copy import copy
from functools import update_wrapper
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import httpx

from .errors import error_of_transport
from .options import Text, extras
from .steps import Action, Answer, Call, Flow, Item, Open, Receive, Request, Run, Sleep, Steps, about
from .transport import Wiring

T = TypeVar("T")
P = ParamSpec("P")
TargetT = TypeVar("TargetT")


class BlockingShell:
    """Connections to one server."""

    def __init__(self, wiring: Wiring, http: httpx.Client | None = None) -> None:
        self.wiring = wiring
        self.http = http or httpx.Client(**wiring.client_options())

    def request(self, request: Request) -> httpx.Request:
        """A request as httpx sends it, with the options of this moment."""
        return self.wiring.request(request, extras(self.wiring.options))

    def run(self, steps: Steps[T]) -> T:
        """What an operation returns."""
        run = Run(steps)
        with Conversation(self) as conversation, closing(run):
            while not run.done:
                conversation.advance(run)
        return run.result

    def iterate(self, flow: Flow[T]) -> Generator[T, None, None]:
        """What an operation gives out, one by one."""
        run = Run(flow)
        with Conversation(self) as conversation, closing(run):
            while not run.done:
                if isinstance(run.action, Item):
                    yield run.action.value
                    run.tell(None)
                else:
                    conversation.advance(run)


class Blocking:
    """Something on a server that is reached through a shell."""

    shell: BlockingShell

    def with_options(
        self, *, headers: Mapping[str, Text] | None = None, params: Mapping[str, Text] | None = None
    ) -> Self:
        """The same, but its requests carry these headers and query parameters too."""
        other = copy(self)
        other.shell = BlockingShell(self.shell.wiring.plus(headers, params), self.shell.http)
        return other


class Conversation:
    """The one answer that an operation has open, if any."""

    def __init__(self, shell: BlockingShell) -> None:
        self._shell = shell
        self._open: httpx.Response | None = None
        self._pieces: Iterator[bytes] = iter(())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._hang_up()

    def advance(self, run: Run[Any]) -> None:
        """Perform the action that an operation wants, and tell it what came of that."""
        try:
            outcome = self._perform(run.action)
        except httpx.RequestError as error:
            self._hang_up()
            run.fail(error_of_transport(error))
        else:
            run.tell(outcome)

    def _perform(self, action: Action) -> object:
        if isinstance(action, Call):
            response = self._shell.http.send(self._shell.request(action.request))
            return Answer(response.status_code, response.headers, response.content)
        if isinstance(action, Open):
            return self._begin(self._shell.request(action.request))
        if isinstance(action, Receive):
            return next(self._pieces, b"")
        if isinstance(action, Sleep):
            time.sleep(action.seconds)
            return None
        return action.function()

    def _begin(self, request: httpx.Request) -> Answer:
        self._hang_up()
        response = self._open = self._shell.http.send(request, stream=True)
        if response.status_code >= 300:
            return Answer(response.status_code, response.headers, response.read())
        self._pieces = response.iter_bytes()
        return Answer(response.status_code, response.headers)

    def _hang_up(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open, self._pieces = None, iter(())


def blocking(
    operation: Callable[Concatenate[TargetT, P], Steps[T]],
) -> Callable[Concatenate[Any, P], T]:
    """A method that runs an operation on its object."""

    def method(target: Any, /, *arguments: P.args, **named: P.kwargs) -> T:
        shell: BlockingShell = target.shell
        return shell.run(about(target.path, operation(target, *arguments, **named)))

    update_wrapper(method, operation)
    return method


def iterating(
    operation: Callable[Concatenate[TargetT, P], Flow[T]],
) -> Callable[Concatenate[Any, P], Generator[T, None, None]]:
    """A method that gives out what an operation on its object finds."""

    def method(target: Any, /, *arguments: P.args, **named: P.kwargs) -> Generator[T, None, None]:
        shell: BlockingShell = target.shell
        return shell.iterate(about(target.path, operation(target, *arguments, **named)))

    update_wrapper(method, operation)
    return method
