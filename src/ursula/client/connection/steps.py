"""The client without I/O: an operation is a generator that yields actions.

A shell performs each action and sends the outcome back into the generator, or throws the error into it. The
synchronous and the asynchronous shell perform the same actions, so every operation is written only once.
"""

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar, cast
from urllib.parse import urlencode

import httpx

from ..errors import StreamError, error_of_answer, whole_number

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request. If the body is a path, the file is sent while it is read.

    `repeatable` means that sending the request twice does no harm. `wait_seconds` is the extra time that the
    server may take beyond the usual timeout, because the request asks it to wait. `longest_seconds` is an
    upper bound on each timeout.
    """

    method: str
    path: str
    params: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | Path = b""
    repeatable: bool = False
    wait_seconds: float = 0.0
    longest_seconds: float | None = None

    def target(self, extra_params: Mapping[str, str]) -> str:
        """Path and query. Parameters are sorted, so that equal requests have equal URLs for caches."""
        query = urlencode(sorted({**extra_params, **self.params}.items()))
        if not query:
            return self.path
        return f"{self.path}{'&' if '?' in self.path else '?'}{query}"


@dataclass(frozen=True, slots=True)
class Answer:
    """The server's response to a request."""

    status: int
    headers: httpx.Headers
    body: bytes = b""

    def checked(self) -> "Answer":
        """Return this response, or raise the error that it reports."""
        if self.status >= 300:
            raise error_of_answer(self.status, self.headers, self.body)
        return self

    def flag(self, name: str) -> bool:
        """Whether a header is `true`."""
        return str(self.headers.get(name, "")).lower() == "true"

    def number(self, name: str) -> int | None:
        """A header as a whole number; None if it is missing or is not one."""
        return whole_number(self.headers.get(name))


@dataclass(frozen=True, slots=True)
class Call:
    """Send a request and read the whole response."""

    request: Request


@dataclass(frozen=True, slots=True)
class Open:
    """Send a request and read only the head of the response; `Receive` reads the body.

    The body of an error is read at once.
    """

    request: Request


@dataclass(frozen=True, slots=True)
class Receive:
    """Read the next bytes of the open response; empty bytes mean its end."""


@dataclass(frozen=True, slots=True)
class Sleep:
    """Wait."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Work:
    """Call a function that does file I/O and may block."""

    function: Callable[[], object]


@dataclass(frozen=True, slots=True)
class Item(Generic[T]):
    """Pass a value to the caller, which iterates over the operation."""

    value: T


Action: TypeAlias = Call | Open | Receive | Sleep | Work
Steps: TypeAlias = Generator[Action, Any, T]
Flow: TypeAlias = Generator[Action | Item[T], Any, None]


class OperationRun(Generic[T]):
    """An operation in progress: the action that it needs next, until it is done."""

    def __init__(self, steps: Generator[Any, Any, T]) -> None:
        self._steps = steps
        self.done = False
        self.action: Any = None
        self._result: Any = None
        self.resume(None)

    @property
    def result(self) -> T:
        """The return value; valid only when the operation is done."""
        return cast(T, self._result)

    def resume(self, outcome: object) -> None:
        """Continue with the outcome of the action."""
        self._advance(lambda: self._steps.send(outcome))

    def fail(self, error: Exception) -> None:
        """Continue with the error that the action raised."""
        self._advance(lambda: self._steps.throw(error))

    def close(self) -> None:
        """Abandon the operation."""
        self._steps.close()

    def _advance(self, step: Callable[[], Any]) -> None:
        try:
            self.action = step()
        except StopIteration as end:
            self.done, self._result = True, end.value


def with_error_path(path: str, steps: Generator[Any, Any, T]) -> Generator[Any, Any, T]:
    """The same steps, but any error that they raise has this path."""
    try:
        return (yield from steps)
    except StreamError as error:
        error.path = path
        raise


def call(request: Request) -> Steps[Answer]:
    """The whole response to a request. Raises if it is an error."""
    return cast(Answer, (yield Call(request))).checked()


def open_answer(request: Request) -> Steps[Answer]:
    """The head of the response to a request. Raises if it is an error."""
    return cast(Answer, (yield Open(request))).checked()


def receive() -> Steps[bytes]:
    """The next bytes of the open response; empty at its end."""
    return cast(bytes, (yield Receive()))


def sleep(seconds: float) -> Steps[None]:
    """Wait."""
    yield Sleep(seconds)


def work(function: Callable[[], T]) -> Steps[T]:
    """The return value of a function that does file I/O."""
    return cast(T, (yield Work(function)))


def without_none(values: Mapping[str, str | None]) -> dict[str, str]:
    """The headers or parameters that have a value."""
    return {name: value for name, value in values.items() if value is not None}
