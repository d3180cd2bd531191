"""One stream on a simulated server, with clients and delays, whose history is linearizable or breaks a rule.

It shares nothing with the specification that the histories are checked against but the operations.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush

from tests.faults.history import (
    Append,
    Appended,
    Call,
    Content,
    Create,
    Created,
    Delete,
    Deleted,
    Head,
    Operation,
    OutcomeUnknown,
    Producer,
    Read,
    Refused,
    Result,
    Tail,
    Unavailable,
)

RULES = (
    "an acknowledged append is stored",
    "an append is stored once",
    "an unavailable append is not stored",
    "an append is stored where its answer says",
    "HEAD shows everything that was acknowledged",
    "a tail read shows everything that was acknowledged",
    "a tail read shows everything that an earlier one showed",
    "a closed stream accepts nothing",
    "an append of a producer is stored once",
    "a deleted stream stays deleted",
    "a stream is created once",
)


@dataclass
class Stored:
    """A stream that exists."""

    messages: list[bytes] = field(default_factory=list)
    closed: bool = False
    closed_by: Producer | None = None
    producers: dict[str, tuple[int, int, int]] = field(default_factory=dict)

    @property
    def tail(self) -> int:
        return sum(map(len, self.messages))

    def copy(self) -> "Stored":
        return replace(self, messages=list(self.messages), producers=dict(self.producers))


@dataclass
class Profile:
    """What the clients of a history do, and how often things go wrong."""

    clients: int = 5
    producers: int = 2
    calls: int = 200
    """How many, by all clients together."""
    unknown: float = 0.05
    unavailable: float = 0.03
    rest: float = 1.0
    """How long a client rests between two calls; a call takes about 1."""
    ends: float = 0.02
    """The share of calls that close or delete the stream."""
    bytes_max: int = 40


class Server:
    """Carries out one call at a time. It breaks one rule once, when it can from the given call on."""

    def __init__(self, broken: str | None, breaks_at: int) -> None:
        self.stream: Stored | None = None
        self.versions: list[Stored | None] = [None]
        """Every state that the stream was in."""
        self.broken = broken
        self.breaks_at = breaks_at
        self.calls = 0
        self.has_broken = False
        self.is_noticed = True
        self.deleted: Stored | None = None

    def breaks(self, rule: str) -> bool:
        """Whether to break this rule now."""
        if rule not in RULES:
            raise KeyError(rule)
        is_time = self.calls >= self.breaks_at and self.is_noticed
        now = rule == self.broken and not self.has_broken and is_time
        self.has_broken = self.has_broken or now
        return now

    def carry_out(self, call: Call, known: int | None = None) -> Result:
        """Carry out a call. An answer had shown the given version of the stream before it was invoked.

        None: the answer to the call will be lost. Then no rule is broken, since nobody might notice.
        """
        self.calls += 1
        self.is_noticed = known is not None
        is_known = known == len(self.versions) - 1
        is_deleted = self.stream is None and self.deleted is not None and isinstance(call, Read)
        if is_known and is_deleted and self.breaks("a deleted stream stays deleted"):
            self.stream = self.deleted
        result = self.change(call, is_known)
        now = None if self.stream is None else self.stream.copy()
        if now != self.versions[-1]:
            self.versions.append(now)
        return result

    def change(self, call: Call, is_known: bool) -> Result:
        stream = self.stream
        if isinstance(call, Head | Read):
            return answer(stream, call)
        if isinstance(call, Create):
            if stream is None:
                self.stream = Stored()
                return Created(new=True)
            if stream.closed:
                return Refused("stream_exists")
            return Created(new=bool(stream.messages) and self.breaks("a stream is created once"))
        if stream is None:
            return Refused("stream_not_found")
        if isinstance(call, Delete):
            self.stream = None
            self.deleted = stream if stream.messages else None
            return Deleted()
        accepts = not stream.closed or (
            is_known
            and call.message != b""
            and call.producer is None
            and self.breaks("a closed stream accepts nothing")
        )
        return self.append(stream, call) if accepts else self.append_to_closed(stream, call)

    def append_to_closed(self, stream: Stored, call: Append) -> Result:
        if call.producer is None:
            return Refused("stream_closed") if call.message else Appended(stream.tail)
        if call.producer == stream.closed_by:
            return Appended(stream.tail, duplicate=True)
        return Refused("stream_closed")

    def append(self, stream: Stored, call: Append) -> Result:
        producer = call.producer
        if producer is not None:
            epoch, seq, next_offset = stream.producers.get(producer.id, (producer.epoch, -1, 0))
            if producer.epoch < epoch:
                return Refused("producer_epoch_stale")
            if producer.epoch > epoch:
                if producer.seq > 0:
                    return Refused("producer_headers_invalid")
                seq = -1
            if producer.seq <= seq and not self.breaks("an append of a producer is stored once"):
                return Appended(next_offset if producer.seq == seq else stream.tail, duplicate=True)
            if producer.seq > seq + 1:
                return Refused("producer_seq_conflict")
        next_offset = self.store(stream, call.message)
        if producer is not None:
            stream.producers[producer.id] = (producer.epoch, producer.seq, next_offset)
        stream.closed = stream.closed or call.close
        stream.closed_by = producer if call.close else stream.closed_by
        return Appended(next_offset)

    def store(self, stream: Stored, message: bytes) -> int:
        """Store a message; returns the offset after it, as the answer says it."""
        messages = stream.messages
        if not message:
            return stream.tail
        messages.append(message)
        next_offset = stream.tail
        if self.breaks("an acknowledged append is stored"):
            messages.pop()
        if self.breaks("an append is stored once"):
            messages.append(message)
        if len(messages) > 1 and self.breaks("an append is stored where its answer says"):
            messages[-2:] = [messages[-1], messages[-2]]
        return next_offset


def answer(stream: Stored | None, call: Head | Read) -> Result:
    """The answer to a HEAD or a read in this state."""
    if stream is None:
        return Refused("stream_not_found")
    if isinstance(call, Head):
        return Tail(stream.tail, stream.closed)
    offset, first = 0, 0
    while first < len(stream.messages) and offset < call.start:
        offset += len(stream.messages[first])
        first += 1
    return Content(tuple(stream.messages[first:]), stream.closed)


def tells_version(result: Result) -> bool:
    """Whether an answer tells the whole state of the stream."""
    match result:
        case Created():
            return result.new
        case Appended():
            return not result.duplicate
        case _:
            return isinstance(result, Tail | Content | Deleted)


class Client:
    """Decides what one client calls next."""

    def __init__(self, name: str, random: random.Random, profile: Profile, produces: bool) -> None:
        self.name = name
        self.random = random
        self.profile = profile
        self.produces = produces
        self.count = 0
        self.epoch = 0
        self.seq = 0
        self.tail = 0
        """The last tail that it was told, where a read may start."""
        self.last: Call = Head()
        self.last_result: Result = Refused("stream_not_found")

    def message(self) -> bytes:
        self.count += 1
        padding = self.random.randrange(self.profile.bytes_max)
        return f"<{self.name} {self.count}{'.' * padding}>".encode()

    def next(self) -> Call:
        """The next call, given the answer to the last one."""
        chance = self.random.random()
        if chance < 0.8 and self.last_result == Refused("stream_not_found"):
            return Create()
        if chance < 0.2 and self.last_result == Refused("stream_closed"):
            return Delete()
        if self.produces and isinstance(self.last, Append):
            retry = self.after_append(self.last)
            if retry is not None:
                return retry
        chance = self.random.random()
        if chance < self.profile.ends:
            ends: list[Call] = [Delete(), Append(close=True), self.append(close=True)]
            return self.random.choice(ends)
        if chance < 0.03:
            return Create()
        if chance < 0.6:
            return self.append(close=False)
        if chance < 0.8:
            return Head()
        return Read(0 if self.profile.ends or chance < 0.85 else self.tail)

    def append(self, close: bool) -> Append:
        producer = Producer(self.name, self.epoch, self.seq) if self.produces else None
        return Append(self.message(), producer, close)

    def after_append(self, last: Append) -> Call | None:
        """What a producer does after an append: send it again, or go on."""
        match self.last_result:
            case OutcomeUnknown() | Unavailable():
                return last
            case Appended():
                if self.random.random() < 0.1:
                    return last
                if last.producer is not None and self.seq == last.producer.seq:
                    self.seq += 1
            case Refused("stream_closed"):
                pass
            case _:
                self.epoch += 1
                self.seq = 0
        return None

    def take(self, call: Call, result: Result) -> None:
        self.last, self.last_result = call, result
        if isinstance(result, Tail):
            self.tail = result.offset
        elif isinstance(result, Appended):
            self.tail = result.next_offset


class Simulation:
    """Runs clients against a server, with random delays, and writes their history down."""

    def __init__(self, seed: int, profile: Profile | None = None, broken: str | None = None) -> None:
        self.random = random.Random(seed)
        self.profile = profile or Profile()
        self.server = Server(broken, self.random.randrange(self.profile.calls // 2))
        self.history: list[Operation] = []
        self._later: list[tuple[float, int, Callable[[], object]]] = []
        self._now = 0.0
        self._calls_left = self.profile.calls
        self._known = 0
        """The last version of the stream that an answer has shown."""
        self._known_to_readers = 0

    def run(self) -> list[Operation]:
        """The history; it ends with a HEAD and a read that are alone."""
        profile = self.profile
        for number in range(profile.clients):
            client = Client(f"c{number}", self.random, profile, produces=number < profile.producers)
            self._at(self.random.random(), lambda client=client: self._call(client))  # type: ignore[misc]
        self._run_out()
        for call in (Head(), Read()):
            self._now += 1
            result = self.server.carry_out(call)
            self.history.append(Operation("last", self._now, self._now + 0.5, call, result))
        return self.history

    def _at(self, time: float, action: Callable[[], object]) -> None:
        heappush(self._later, (time, self.random.randrange(1 << 60), action))

    def _delay(self) -> float:
        return self.random.expovariate(2.0)

    def _run_out(self) -> None:
        while self._later:
            self._now, _, action = heappop(self._later)
            action()

    def _call(self, client: Client) -> None:
        if self._calls_left <= 0:
            return
        self._calls_left -= 1
        call, server, invoked = client.next(), self.server, self._now
        chance = self.random.random() - self.profile.unknown
        effect_at = invoked + self._delay()
        if chance < 0:
            self._at(effect_at, lambda: self._respond(client, call, invoked, OutcomeUnknown()))
            if self.random.random() < 0.6:
                late = self._delay() * self.random.choice((1, 1, 100))
                self._at(invoked + late, lambda: server.carry_out(call))
        elif chance < self.profile.unavailable:
            self._at(effect_at, lambda: self._respond(client, call, invoked, Unavailable()))
            is_open = server.stream is not None and not server.stream.closed
            is_plain = isinstance(call, Append) and call.producer is None
            if is_open and is_plain and server.breaks("an unavailable append is not stored"):
                server.carry_out(call)
        else:
            known, known_to_readers = self._known, self._known_to_readers

            def take_effect() -> None:
                result = server.carry_out(call, known)
                version = len(server.versions) - 1

                def respond() -> None:
                    shown = self._stale(call, known, known_to_readers)
                    if tells_version(result):
                        self._known = max(self._known, version)
                    if isinstance(call, Read):
                        self._known_to_readers = max(self._known_to_readers, version)
                    self._respond(client, call, invoked, shown or result)

                self._at(self._now + self._delay(), respond)

            self._at(effect_at, take_effect)

    def _stale(self, call: Call, known: int, known_to_readers: int) -> Result | None:
        """An answer from the past, if that breaks the rule."""
        if not isinstance(call, Head | Read):
            return None
        if isinstance(call, Head):
            rule = "HEAD shows everything that was acknowledged"
        elif self.server.broken == "a tail read shows everything that an earlier one showed":
            rule, known = self.server.broken, known_to_readers
        else:
            rule = "a tail read shows everything that was acknowledged"
        versions = self.server.versions
        stale = answer(versions[max(0, known - 1)], call)
        if any(answer(version, call) == stale for version in versions[known:]):
            return None
        return stale if self.server.breaks(rule) else None

    def _respond(self, client: Client, call: Call, invoked: float, result: Result) -> None:
        self.history.append(Operation(client.name, invoked, self._now, call, result))
        client.take(call, result)
        rest = self.random.expovariate(1 / self.profile.rest)
        self._at(self._now + rest, lambda: self._call(client))
