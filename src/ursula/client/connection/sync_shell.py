"""The synchronous shell: performs the actions of operations over httpx, in the caller's thread."""

import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from copy import copy
from functools import update_wrapper
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import httpx

from ..errors import error_of_transport
from .request_options import Text, resolve
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


class SyncShell:
    """Runs operations against one server, over persistent connections."""

    def __init__(self, endpoint: Endpoint, http: httpx.Client | None = None) -> None:
        self.endpoint = endpoint
        self.http = http or httpx.Client(**endpoint.httpx_options())

    def request(self, request: Request) -> httpx.Request:
        """A request as httpx sends it, with the caller's options as they are now."""
        return self.endpoint.httpx_request(request, resolve(self.endpoint.options))

    def run(self, steps: Steps[T]) -> T:
        """Run an operation and return its result."""
        run = OperationRun(steps)
        with SyncDriver(self) as driver, closing(run):
            while not run.done:
                driver.advance(run)
        return run.result

    def iterate(self, flow: Flow[T]) -> Generator[T, None, None]:
        """Run an operation and yield its items."""
        run = OperationRun(flow)
        with SyncDriver(self) as driver, closing(run):
            while not run.done:
                if isinstance(run.action, Item):
                    yield run.action.value
                    run.resume(None)
                else:
                    driver.advance(run)


class SyncDriver:
    """Performs the actions of one operation, and holds its open response, if any."""

    def __init__(self, shell: SyncShell) -> None:
        self._shell = shell
        self._open: httpx.Response | None = None
        self._pieces: Iterator[bytes] = iter(())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close_answer()

    def advance(self, run: OperationRun[Any]) -> None:
        """Perform the action that an operation needs next, and resume it with the outcome."""
        try:
            outcome = self._perform(run.action)
        except httpx.RequestError as error:
            self._close_answer()
            run.fail(error_of_transport(error))
        else:
            run.resume(outcome)

    def _perform(self, action: Action) -> object:
        if isinstance(action, Call):
            response = self._shell.http.send(self._shell.request(action.request))
            return Answer(response.status_code, response.headers, response.content)
        if isinstance(action, Open):
            return self._open_answer(self._shell.request(action.request))
        if isinstance(action, Receive):
            return next(self._pieces, b"")
        if isinstance(action, Sleep):
            time.sleep(action.seconds)
            return None
        return action.function()

    def _open_answer(self, request: httpx.Request) -> Answer:
        self._close_answer()
        response = self._open = self._shell.http.send(request, stream=True)
        if response.status_code >= 300:
            return Answer(response.status_code, response.headers, response.read())
        self._pieces = response.iter_bytes()
        return Answer(response.status_code, response.headers)

    def _close_answer(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open, self._pieces = None, iter(())


class SyncHandle:
    """A stream or bucket whose operations run in a synchronous shell."""

    shell: SyncShell

    def with_options(
        self, *, headers: Mapping[str, Text] | None = None, params: Mapping[str, Text] | None = None
    ) -> Self:
        """The same stream or bucket, with these headers and query parameters added to its requests."""
        other = copy(self)
        other.shell = SyncShell(self.shell.endpoint.plus(headers, params), self.shell.http)
        return other


def sync_method(
    operation: Callable[Concatenate[TargetT, P], Steps[T]],
) -> Callable[Concatenate[Any, P], T]:
    """A method that runs an operation on its object and returns the result."""

    def method(target: Any, /, *arguments: P.args, **named: P.kwargs) -> T:
        shell: SyncShell = target.shell
        return shell.run(with_error_path(target.path, operation(target, *arguments, **named)))

    update_wrapper(method, operation)
    return method


def sync_iterator(
    operation: Callable[Concatenate[TargetT, P], Flow[T]],
) -> Callable[Concatenate[Any, P], Generator[T, None, None]]:
    """A method that runs an operation on its object and yields its items."""

    def method(target: Any, /, *arguments: P.args, **named: P.kwargs) -> Generator[T, None, None]:
        shell: SyncShell = target.shell
        return shell.iterate(with_error_path(target.path, operation(target, *arguments, **named)))

    update_wrapper(method, operation)
    return method
