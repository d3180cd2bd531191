"""The client without its connections: an operation is a generator of actions.

It yields what is to be done and is sent what came of it, or has the error thrown into it. The blocking
and the asynchronous shell perform the same actions, so that everything else is written once.
"""

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar, cast
from urllib.parse import urlencode

import httpx

from .errors import StreamError, error_of_answer, whole_number

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request; a path as body is a file that is sent as it is read.

    `repeatable` tells that sending it twice does no harm. `wait_seconds` is how long the server may take
    by agreement, on top of the usual timeout; `longest_seconds` bounds each wait for it whatever is usual.
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
        """Path and query; parameters are sorted, so that caches see one spelling."""
        query = urlencode(sorted({**extra_params, **self.params}.items()))
        if not query:
            return self.path
        return f"{self.path}{'&' if '?' in self.path else '?'}{query}"


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    status: int
    headers: httpx.Headers
    body: bytes = b""

    def checked(self) -> "Answer":
        """Itself, if it is no error."""
        if self.status >= 300:
            raise error_of_answer(self.status, self.headers, self.body)
        return self

    def flag(self, name: str) -> bool:
        """Whether a header says true."""
        return str(self.headers.get(name, "")).lower() == "true"

    def number(self, name: str) -> int | None:
        """A header that is a number, if it is there."""
        return whole_number(self.headers.get(name))


@dataclass(frozen=True, slots=True)
class Call:
    """Send a request and take the whole answer."""

    request: Request


@dataclass(frozen=True, slots=True)
class Open:
    """Send a request and take the head of the answer; the body is received afterwards. Errors come whole."""

    request: Request


@dataclass(frozen=True, slots=True)
class Receive:
    """Take the next bytes of the open answer; none mean its end."""


@dataclass(frozen=True, slots=True)
class Sleep:
    """Wait."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Work:
    """Call something that touches files and may take a while."""

    function: Callable[[], object]


@dataclass(frozen=True, slots=True)
class Item(Generic[T]):
    """Hand something to whoever iterates."""

    value: T


Action: TypeAlias = Call | Open | Receive | Sleep | Work
Steps: TypeAlias = Generator[Action, Any, T]
Flow: TypeAlias = Generator[Action | Item[T], Any, None]


class Run(Generic[T]):
    """An operation under way: the action it wants next, until it is done."""

    def __init__(self, steps: Generator[Any, Any, T]) -> None:
        self._steps = steps
        self.done = False
        self.action: Any = None
        self._result: Any = None
        self.tell(None)

    @property
    def result(self) -> T:
        """What it returned; only when it is done."""
        return cast(T, self._result)

    def tell(self, outcome: object) -> None:
        """Go on with what came of the action."""
        self._go_on(lambda: self._steps.send(outcome))

    def fail(self, error: Exception) -> None:
        """Go on with the error that the action ended in."""
        self._go_on(lambda: self._steps.throw(error))

    def close(self) -> None:
        """Leave it where it is."""
        self._steps.close()

    def _go_on(self, resume: Callable[[], Any]) -> None:
        try:
            self.action = resume()
        except StopIteration as end:
            self.done, self._result = True, end.value


def about(path: str, steps: Generator[Any, Any, T]) -> Generator[Any, Any, T]:
    """The same steps; an error that leaves them names what they were about."""
    try:
        return (yield from steps)
    except StreamError as error:
        error.path = path
        raise


def call(request: Request) -> Steps[Answer]:
    """The answer to a request, if it is no error."""
    return cast(Answer, (yield Call(request))).checked()


def open_answer(request: Request) -> Steps[Answer]:
    """The head of an answer, if it is no error."""
    return cast(Answer, (yield Open(request))).checked()


def receive() -> Steps[bytes]:
    """The next bytes of the open answer; none at its end."""
    return cast(bytes, (yield Receive()))


def sleep(seconds: float) -> Steps[None]:
    """Wait."""
    yield Sleep(seconds)


def work(function: Callable[[], T]) -> Steps[T]:
    """What a function that touches files returns."""
    return cast(T, (yield Work(function)))
