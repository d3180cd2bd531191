"""One request and its response."""

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

import msgspec

from ..engine.failures import Failure, NotCurrent, OutcomeUnknown, Unavailable
from ..engine.interface import GroupApi
from ..engine.reads.deferred import Deferred
from ..model.outcomes import Description, Refused
from .certainty import in_time
from .errors import Problem
from .store_problems import fetch_deferred
from .syntax.hosts import is_valid_host
from .syntax.names import BUCKET_PATTERN, Target, is_bucket_name
from .syntax.tokens import OFFSET_DIGITS, format_offset, parse_incarnation
from .wire.headers import HeaderList
from .wire.request import Outgoing, Request

if TYPE_CHECKING:
    from .body.read import BodyLimit
    from .services import Services

T = TypeVar("T")
P = TypeVar("P")

NDJSON = "application/x-ndjson"
JSON_HEADERS: HeaderList = [("content-type", "application/json"), ("cache-control", "no-store")]

PATH_SAFE = "/:@!$&()*+,;=~-._"
"""The characters of a path that need no escape in a URL."""

logger = logging.getLogger(__name__)


class Exchange:
    """A request as a handler sees it, and the ways to answer it, of which the handler uses one, once."""

    __slots__ = (
        "_doubt",
        "answered",
        "began_at",
        "cors_lines",
        "headers",
        "held_bytes",
        "label",
        "request",
        "services",
        "target",
    )

    headers: dict[str, str]
    """The headers that the server interprets; set only for requests on streams and buckets."""

    def __init__(
        self, services: "Services", request: Request, label: str, target: Target, cors_lines: str
    ) -> None:
        self.began_at = perf_counter()
        self.services = services
        self.request = request
        self.label = label  # the route in the metrics
        self.target = target
        self.held_bytes = 0
        self.answered = False
        self.cors_lines = cors_lines
        self._doubt: str | None = None

    # The request

    @property
    def group(self) -> GroupApi:
        """The group that the target belongs to, unless this node must not serve it."""
        group = self.services.node.group_of(self.target.bucket)
        if group.disagreement is not None:
            raise Problem("unavailable", group.disagreement)
        return group

    async def read_body(self, limit: "BodyLimit | None" = None) -> bytes:
        """Read the whole body."""
        return await self.services.bodies.read(self, limit)

    async def read_json(
        self,
        kind: type[T],
        body_help: str,
        limit: "BodyLimit | None" = None,
        if_empty: T | None = None,
    ) -> T:
        """Read the body as JSON of this kind; `body_help` says in an error what it should have been."""
        body = await self.read_body(limit)
        if if_empty is not None and not body.strip():
            return if_empty
        try:
            return msgspec.json.decode(body, type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise Problem("invalid_json", f"{body_help}: {error}") from None

    def requested_incarnation(self) -> str | None:
        """The incarnation that the request names, if it names one."""
        header = self.headers.get("stream-incarnation")
        return None if header is None else parse_incarnation(header, self.services.generation)

    # What the engine returns

    def expect(self, kind: type[T], outcome: object) -> T:
        """The outcome, which should be of this kind. A refusal or a failure is raised as a problem."""
        if isinstance(outcome, kind):
            return outcome
        if isinstance(outcome, Refused | Unavailable | OutcomeUnknown):
            raise self.problem(outcome)
        raise TypeError(f"this is the outcome of another command: {outcome!r}")

    # How recent the applied state is

    async def wait_until_current(self) -> None:
        """Wait until everything acknowledged before the request is applied. Once is enough: it remains so.

        If the deadline of the target has passed, the stream ends first.
        """
        if not self.group.is_current:
            await self.group.current()
        await self.expire_if_due()

    async def settle(self) -> None:
        """The same for a read, which does not wait for long; raises NotCurrent."""
        if self._is_overdue or not self.group.is_current:
            await in_time(self.wait_until_current())

    async def describe(self) -> Description:
        """Describe the target of a read."""
        return await self.find(Description, self.described)

    def described(self) -> Description | Refused:
        """The description of the target in the applied state, however old that is."""
        return self.group.describe(self.target.bucket, self.target.stream, self.requested_incarnation())

    async def find(self, kind: type[T], read: Callable[[], T | Refused]) -> T:
        """What a read finds in the applied state, once that is recent enough.

        A node that answers reads from its own state asks for the tail only if it would refuse the read: it
        may be a moment behind the node on which the stream was just created.
        """
        if not self.reads_locally:
            await self.settle()
            return self.expect(kind, read())
        if self._is_overdue:
            await in_time(self.expire_if_due())
        found = read()
        if isinstance(found, Refused):
            await self.settle()
            found = read()
        return self.expect(kind, found)

    async def read_page(
        self, read: Callable[[GroupApi], P | Refused | Deferred[P]], needs_tail: Callable[[P], bool]
    ) -> P | Refused:
        """Read a page; if it depends on the newest state (`needs_tail`), that state is waited for.

        Without that state a page remains as it is, and `doubt` says why it may be followed by more. What was
        current when the request arrived is good enough, even after a wait.
        """
        group = self.group
        is_current = group.is_current
        if self._is_overdue:
            await in_time(self.expire_if_due())
        page = await _fetched(read(group))
        if not is_current and self.must_settle(page, needs_tail):
            try:
                await self.settle()
            except NotCurrent as error:
                if isinstance(page, Refused):
                    raise
                self._doubt = str(error)
            else:
                page = await _fetched(read(group))
        self.check_group(group)
        return page

    def must_settle(self, page: P | Refused, needs_tail: Callable[[P], bool]) -> bool:
        """Whether a response must not be sent before the newest state is applied."""
        return isinstance(page, Refused) or (not self.reads_locally and needs_tail(page))

    def check_group(self, group: GroupApi) -> None:
        """Raise NotCurrent if the node has dropped the group meanwhile: a live read would wait for ever."""
        if self.group is not group or not self.services.node.recovered:
            raise NotCurrent("the node starts again")

    def check_certain(self) -> None:
        """Raise NotCurrent if the response must not say that its client has everything."""
        if (doubt := self.doubt) is not None:
            raise NotCurrent(doubt)

    @property
    def reads_locally(self) -> bool:
        """Whether this node answers reads from its own state, without asking for the tail of the log."""
        return self.services.contact is not None

    @property
    def doubt(self) -> str | None:
        """Why the response must not say that its client has everything; None if it may."""
        contact = self.services.contact
        return self._doubt if self._doubt is not None or contact is None else contact.problem

    async def expire_if_due(self) -> None:
        """End the target if its deadline has passed."""
        if self._is_overdue:
            outcome = await self.group.end_overdue(self.target.bucket, self.target.stream)
            if isinstance(outcome, Failure):
                raise self.problem(outcome)

    @property
    def _is_overdue(self) -> bool:
        target = self.target
        return bool(target.stream) and self.group.is_overdue(target.bucket, target.stream)

    # The response

    def reply_empty(self, status: int, headers: HeaderList) -> None:
        """Respond without a body."""
        if self._finish(status):
            self.request.send(status, self.cors_lines, headers, None)

    def reply(self, status: int, headers: HeaderList, body: bytes) -> None:
        """Respond with a body."""
        if self._finish(status):
            self.request.send(status, self.cors_lines, headers, body)

    def reply_json(self, status: int, answer: object, headers: HeaderList | None = None) -> None:
        """Respond with a value as JSON."""
        self.reply(status, [*(headers or ()), *JSON_HEADERS], msgspec.json.encode(answer))

    def reply_file(self, status: int, headers: HeaderList, path: str, start: int, end: int) -> None:
        """Respond with a range of a file, which is read at the client's pace."""
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        if self._finish(status):
            self.request.send_file(status, self.cors_lines, headers, file=file, start=start, end=end)
        else:
            os.close(file)

    def reply_stream(self, status: int, headers: HeaderList) -> Outgoing:
        """Begin a response whose body is sent piece by piece."""
        self._finish(status)
        return self.request.begin(status, self.cors_lines, headers)

    def reply_problem(self, problem: Problem) -> None:
        """Respond with an error."""
        self.reply(problem.status, problem.answer_headers(), problem.body())

    def reply_error(self, error: Exception) -> None:
        """Answer a request whose handler raised: a problem for the client, or a bug."""
        if isinstance(error, Problem):
            if error.code == "object_damaged":  # only an operator can fix this, and operators read the log
                logger.error("%s %s: %s", self.request.method, self.request.path, error.message)
            self.reply_problem(error)
        elif isinstance(error, NotCurrent):
            self.reply_problem(Problem("unavailable", str(error)))
        else:
            logger.error("%s %s failed", self.request.method, self.request.path, exc_info=error)
            self.reply_problem(Problem("internal_error", "the server failed; see its log"))

    # Continuing later

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Continue with the request in a task; an exception becomes its response."""

        async def guarded() -> None:
            try:
                await work
            except Exception as error:
                self.reply_error(error)

        def done(task: asyncio.Task[None]) -> None:
            tasks.discard(task)
            work.close()  # if the task was cancelled before it began, asyncio would warn about `work`

        tasks = self.services.tasks
        task = asyncio.get_running_loop().create_task(guarded())
        tasks.add(task)
        task.add_done_callback(done)
        return task

    def guard(self, function: Callable[..., None], *arguments: Any) -> None:
        """Call a function; an exception becomes the response to the request."""
        try:
            function(*arguments)
        except Exception as error:
            self.reply_error(error)

    # Parts of responses

    def location(self, path: str | None = None) -> str:
        """The absolute URL of the request, or of another path."""
        given = self.request.headers.get("host", [])
        host = given[0] if len(given) == 1 and is_valid_host(given[0]) else self.services.advertise
        path = self.request.path if path is None else path
        return f"{self.request.scheme}://{host}{quote(path, safe=PATH_SAFE)}"

    def incarnation(self, incarnation: str) -> str:
        """An incarnation as clients see it: with the generation, so that a restore invalidates it."""
        return f"{self.services.generation}-{incarnation}"

    def state_headers(self, incarnation: str, next_offset: int, tail: int, closed: bool) -> HeaderList:
        """The headers of every response about the state of a stream: next offset, entity tag, incarnation."""
        name = f"{self.services.generation}-{incarnation}"
        headers = [
            ("stream-next-offset", str(next_offset).zfill(OFFSET_DIGITS)),
            ("etag", f'"{name}:{tail}:{tail}:c"' if closed else f'"{name}:{tail}:{tail}"'),
            ("stream-incarnation", name),
        ]
        if closed:
            headers.append(("stream-closed", "true"))
        return headers

    def problem(self, outcome: Refused | Failure) -> Problem:
        """A refusal or a failure of the group as a problem."""
        if not isinstance(outcome, Refused):
            is_unknown = isinstance(outcome, OutcomeUnknown)
            return Problem("outcome_unknown" if is_unknown else "unavailable", outcome.reason)
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
        """Mark the request as answered. Returns False if it already was."""
        if self.answered:
            return False
        self.answered = True
        services, request = self.services, self.request
        if self.held_bytes:
            services.bodies.release(self.held_bytes)
            self.held_bytes = 0
        services.stats.note(self.label, request.method, status, perf_counter() - self.began_at)
        return True


async def _fetched(page: P | Refused | Deferred[P]) -> P | Refused:
    return await fetch_deferred(page) if isinstance(page, Deferred) else page
