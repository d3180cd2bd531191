"""One request and its answer."""

import os
from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING

from ..engine.failures import Failure, OutcomeUnknown
from ..model.outcomes import Refused
from .errors import Problem
from .observe.request_stats import STREAM
from .syntax.names import BUCKET_PATTERN, Target, is_bucket_name
from .syntax.tokens import OFFSET_DIGITS, format_offset, parse_incarnation
from .wire.headers import HeaderList
from .wire.request import Outgoing, Request

if TYPE_CHECKING:
    from .app import App
    from .body.read import BodyLimit


class Exchange:
    """What a handler needs to know of a request, and the ways to answer it, of which it uses one, once."""

    __slots__ = (
        "answered",
        "app",
        "began_at",
        "common",
        "headers",
        "held_bytes",
        "method",
        "raw_headers",
        "request",
        "route",
        "target",
        "then",
    )

    target: Target
    headers: dict[str, str]
    then: Callable[[bytes], None] | None

    def __init__(self, app: "App", request: Request) -> None:
        self.began_at = perf_counter()
        self.app = app
        self.request = request
        self.method = request.method
        self.route = STREAM  # as it is counted: what most requests are about
        self.raw_headers = request.headers
        self.held_bytes = 0
        self.then = None
        self.answered = False
        cors = app.cors
        self.common = cors.open or cors.lines(self.raw_headers.first("origin"))

    def on_body(self, body: bytes) -> None:
        """The whole body is here."""
        then, self.then = self.then, None  # it often refers to this: a cycle would stay in memory for good
        if then is not None:
            then(body)

    def read_body(self, then: Callable[[bytes], None], limit: "BodyLimit | None" = None) -> None:
        """Have the body read, and `then` called with all of it."""
        self.then = then
        self.app.bodies.read(self, limit)

    def empty(self, status: int, headers: HeaderList) -> None:
        """Answer without a body."""
        if self._finish(status):
            self.request.send(status, self.common, headers, None)

    def send(self, status: int, headers: HeaderList, body: bytes) -> None:
        """Answer with a body."""
        if self._finish(status):
            self.request.send(status, self.common, headers, body)

    def file(self, status: int, headers: HeaderList, path: str, start: int, end: int) -> None:
        """Answer with a range of a file, which is read as the client takes it."""
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        if self._finish(status):
            self.request.send_file(status, self.common, headers, file, start, end)
        else:
            os.close(file)

    def stream(self, status: int, headers: HeaderList) -> Outgoing:
        """Begin an answer whose body comes bit by bit."""
        self._finish(status)
        return self.request.begin(status, self.common, headers)

    def refuse(self, problem: Problem) -> None:
        """Answer with an error."""
        self.send(problem.status, problem.answer_headers(), problem.body())

    def refused(self, outcome: Refused | Failure) -> None:
        """Answer with what the group refused or could not do."""
        self.refuse(self._problem(outcome))

    def wanted_incarnation(self) -> str | None:
        """The incarnation that the client means, if it says so."""
        header = self.headers.get("stream-incarnation")
        return None if header is None else parse_incarnation(header, self.app.generation)

    def state_headers(self, incarnation: str, next_offset: int, tail: int, closed: bool) -> HeaderList:
        """What every answer about the state of a stream says: where it goes on, its tag and which it is."""
        name = f"{self.app.generation}-{incarnation}"
        headers = [
            ("stream-next-offset", str(next_offset).zfill(OFFSET_DIGITS)),
            ("etag", f'"{name}:{tail}:{tail}:c"' if closed else f'"{name}:{tail}:{tail}"'),
            ("stream-incarnation", name),
        ]
        if closed:
            headers.append(("stream-closed", "true"))
        return headers

    def incarnation(self, incarnation: str) -> str:
        """An incarnation as clients see it: with the generation, so that none survives a restore."""
        return f"{self.app.generation}-{incarnation}"

    def _problem(self, outcome: Refused | Failure) -> Problem:
        if not isinstance(outcome, Refused):
            code = "outcome_unknown" if isinstance(outcome, OutcomeUnknown) else "unavailable"
            return Problem(code, outcome.reason)
        code = outcome.code
        if code == "bucket_not_found" and self.target.flat:
            code = "stream_not_found"
        elif code == "bucket_not_found" and not self.target.stream and not is_bucket_name(self.target.bucket):
            return Problem("invalid_bucket_id", f"{outcome.message}: {BUCKET_PATTERN}")
        headers: HeaderList = []
        data: dict[str, object] = {}
        if outcome.incarnation is not None:
            headers.append(("stream-incarnation", self.incarnation(outcome.incarnation)))
        if outcome.tail is not None:
            headers.append(("stream-next-offset", format_offset(outcome.tail)))
        if outcome.closed:
            headers.append(("stream-closed", "true"))
        if outcome.earliest is not None:
            headers.append(("stream-earliest-offset", format_offset(outcome.earliest)))
        if outcome.epoch is not None:
            headers.append(("producer-epoch", str(outcome.epoch)))
            data["current_epoch"] = outcome.epoch
        if outcome.expected_seq is not None:
            headers.append(("producer-expected-seq", str(outcome.expected_seq)))
            headers.append(("producer-received-seq", str(outcome.received_seq)))
            data.update(expected_seq=outcome.expected_seq, received_seq=outcome.received_seq)
        return Problem(code, outcome.message, headers, **data)

    def _finish(self, status: int) -> bool:
        """Whether the answer is still to be given; from here on it is."""
        if self.answered:
            return False
        self.answered = True
        self.then = None
        app = self.app
        if self.held_bytes:
            app.bodies.held_bytes -= self.held_bytes
            self.held_bytes = 0
        app.traffic.note(self.route, self.method, status, perf_counter() - self.began_at)
        return True
