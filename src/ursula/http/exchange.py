"""One request and its answer."""

from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING

from ..engine.failures import Failure, OutcomeUnknown
from ..model.outcomes import Refused
from .errors import RETRY_AFTER_SECONDS, Problem
from .names import Target
from .rsgi import Future, HeaderList, Protocol_, Scope, Transport
from .tokens import OFFSET_DIGITS, format_offset, parse_incarnation
from .traffic import STREAM

if TYPE_CHECKING:
    from .app import App
    from .bodies import BodyLimit


class Exchange:
    """What a handler needs to know of a request, and the ways to answer it, of which it uses one, once."""

    __slots__ = (
        "answered",
        "app",
        "began_at",
        "body_future",
        "body_length",
        "common",
        "headers",
        "held_bytes",
        "method",
        "proto",
        "raw_headers",
        "route",
        "scope",
        "target",
        "then",
        "unread",
    )

    target: Target
    headers: dict[str, str]
    body_length: int
    then: Callable[[bytes], None]

    def __init__(
        self, app: "App", scope: Scope, proto: Protocol_, method: str, body_future: Future | None
    ) -> None:
        self.began_at = perf_counter()
        self.app = app
        self.scope = scope
        self.proto = proto
        self.method = method
        self.body_future = body_future
        self.route = STREAM  # as it is counted: what most requests are about
        self.raw_headers = scope.headers
        self.held_bytes = 0
        self.answered = False
        self.unread = True
        cors = app.cors
        self.common = cors.open or cors.headers(self.raw_headers.get("origin"))

    def on_body(self, body: bytes) -> None:
        """The whole body is here."""
        self.then(body)

    def read_body(self, then: Callable[[bytes], None], limit: "BodyLimit | None" = None) -> None:
        """Have the body read, and `then` called with all of it."""
        self.then = then
        self.app.bodies.read(self, limit)

    def empty(self, status: int, headers: HeaderList) -> None:
        """Answer without a body."""
        if self._finish(status):
            self.proto.response_empty(status, self.common + headers)

    def send(self, status: int, headers: HeaderList, body: bytes) -> None:
        """Answer with a body."""
        if self._finish(status):
            self.proto.response_bytes(status, self.common + headers, body)

    def file(self, status: int, headers: HeaderList, path: str, start: int, end: int) -> None:
        """Answer with a stretch of a file, which is read as the client takes it."""
        if self._finish(status):
            headers = [*self.common, *headers, ("content-length", str(end - start))]
            self.proto.response_file_range(status, headers, path, start, end)

    def stream(self, status: int, headers: HeaderList) -> Transport:
        """Begin an answer whose body comes bit by bit."""
        self._finish(status)
        return self.proto.response_stream(status, self.common + headers)

    def refuse(self, problem: Problem) -> None:
        """Answer with an error."""
        headers = [("content-type", "application/json"), *problem.headers]
        retry_after = RETRY_AFTER_SECONDS.get(problem.code)
        if retry_after is not None:
            headers.append(("retry-after", str(retry_after)))
        if self.unread and self._announces_body():
            headers.append(("connection", "close"))  # no next request can come after a body half read
        self.send(problem.status, headers, problem.body())

    def _announces_body(self) -> bool:
        return self.raw_headers.get("content-length") not in (None, "0") or (
            "transfer-encoding" in self.raw_headers
        )

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
        app = self.app
        if self.held_bytes:
            app.bodies.held_bytes -= self.held_bytes
            self.held_bytes = 0
        app.traffic.note(self.route, self.method, status, perf_counter() - self.began_at)
        return True
