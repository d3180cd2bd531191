"""Is a history of one stream linearizable? By Wing and Gong's search with Lowe's memory.

The search goes through the invocations and responses in the order of time. A configuration is the state of
the stream and the set of operations that have taken effect before their response. At the response of an
operation that has not taken effect, the search tries every order in which operations under way may have taken
effect, the answered one last. It goes depth first and remembers the configurations that led nowhere.

Almost every operation has one place only, which keeps the search short:

- An operation without effect takes effect as soon as the state agrees with its answer: that excludes nothing.
- An append fits only where the tail is what its answer says. One of unknown outcome fits only where a read
  has shown its message, if any has.
- Messages that a read shows together are of one incarnation of the stream. It is not deleted while another
  operation must still happen to it.
- An operation of unknown outcome takes effect only where it enables another one.
- Appends of unknown outcome whose messages no read has shown fill a gap between known places, if some of them
  have the size of the gap together. The search does not remember which of them it has used: that the same
  append would have to take effect twice, and was never shown, is the one thing that it does not notice.
"""

from bisect import bisect_left
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

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
    Read,
    Tail,
    Unavailable,
)
from tests.faults.stream_spec import Messages, State, Stream, shows, take

STEPS_MAX = 200_000
"""After this many steps the search gives up."""

INFINITE = float("inf")


class Undecided(Exception):
    """The search took too many steps."""


class NotLinearizable(Exception):
    """No order of the operations explains their answers; the message names those involved."""

    def __init__(self, prefix: list[Operation], text: str) -> None:
        super().__init__(text)
        self.prefix = prefix
        """The smallest beginning of the history that has no linearization.

        It has the operations that were invoked by then; those answered later have an unknown outcome.
        """


def check(history: Sequence[Operation]) -> None:
    """Raise NotLinearizable unless the history of a stream is. The stream does not exist at first."""
    if Search(history).succeeds():
        return
    times = sorted({operation.responded for operation in history if is_answered(operation)})
    low, high = 0, len(times) - 1
    while low < high:  # the history up to times[high] has no linearization
        middle = (low + high) // 2
        if Search(until(history, times[middle])).succeeds():
            low = middle + 1
        else:
            high = middle
    prefix = until(history, times[high])
    failed = Search(prefix)
    failed.succeeds()
    raise NotLinearizable(prefix, explanation(prefix, times[high], failed, history))


def is_answered(operation: Operation) -> bool:
    return not isinstance(operation.result, OutcomeUnknown | Unavailable)


def until(history: Sequence[Operation], time: float) -> list[Operation]:
    """A history as it was known at a time: operations that were under way have an unknown outcome."""
    return [
        operation
        if operation.responded <= time
        else Operation(operation.client, operation.invoked, INFINITE, operation.call, OutcomeUnknown())
        for operation in history
        if operation.invoked <= time
    ]


@dataclass(eq=False, slots=True)
class Step:
    """An operation in the search, and what its answer says about when it took effect."""

    operation: Operation
    bit: int
    size: int
    is_silent: bool
    """The answer says that it changed nothing."""
    is_optional: bool
    at: int | None = None
    """The tail at which it takes effect, if that is known."""
    is_seen: bool = True
    """A read has shown its message."""
    incarnation: int | None = None
    """The incarnation to which it happens, if reads tell."""
    deadline: float = INFINITE
    """It has taken effect by this time."""
    begins: int = 0
    ends: float = INFINITE
    """The numbers of its invocation and its response among the events."""

    @property
    def closes(self) -> bool:
        return isinstance(self.operation.call, Append) and self.operation.call.close

    @property
    def tails(self) -> list[int]:
        """The tails that it may need before it, or before the append of which it is a duplicate."""
        result = self.operation.result
        if isinstance(result, Appended):
            return [result.next_offset, result.next_offset - self.size]
        return [] if self.at is None else [self.at]

    def may_follow(self, append: Append, end: int) -> bool:
        """Whether an append that ends there, and that does not close, may be needed for this answer."""
        call = self.operation.call
        if isinstance(call, Append) and call.producer and append.producer:
            return call.producer.id == append.producer.id or max(self.tails, default=0) >= end
        return max(self.tails, default=0) >= end

    def applied(self, state: State, empty: Messages) -> tuple[bool, State]:
        """Whether the answer fits this state, and the state after it. One of unknown outcome always fits."""
        call, result = self.operation.call, self.operation.result
        if self.at is not None and (state is None or state.messages.tail != self.at):
            return False, state
        if isinstance(call, Read):
            return shows(state, call, result), state
        after, answer = take(state, call, empty, self.is_seen)
        if self.is_optional:
            return after != state, after
        return answer == result, after


@dataclass(slots=True)
class Event:
    """An invocation or a response, and the operations under way whose answers are known."""

    step: Step
    is_response: bool
    number: int
    silent: list[Step]
    writes: list[Step]


Configuration = tuple[State, int]
"""The state, and the bits of the operations that have taken effect before their answers, if they have any."""


class Search:
    """One search for a linearization."""

    def __init__(self, history: Sequence[Operation]) -> None:
        self.empty = Messages()
        self.steps_taken = 0
        self.last_response = -INFINITE
        """The latest response that the search has come to."""
        self.stuck: set[State] = set()
        """The states in which the stream may have been before that response."""
        self._seen = Seen(history)
        self._all = self._steps(history)
        self._events = self._in_order()
        self._others: dict[Call, list[Step]] = defaultdict(list)
        self._of_producers: dict[tuple[str, int], dict[Call, list[Step]]] = defaultdict(
            lambda: defaultdict(list)
        )
        self._seen_at: dict[int, list[Step]] = defaultdict(list)
        self._unseen: list[Step] = []
        for step in sorted(self._all, key=lambda step: step.begins):
            if step.is_optional:
                self._sort_in(step)
        self._placed = sorted(
            (step for step in self._all if step.at is not None and step.deadline < INFINITE),
            key=lambda step: step.at or 0,
        )
        self._places = [step.at or 0 for step in self._placed]
        self._sums = [1]
        """Bit n of item i is set if some of the first i unseen appends have n bytes together."""
        for step in self._unseen:
            self._sums.append(self._sums[-1] | self._sums[-1] << step.size)
        self._of: dict[int, list[Step]] = defaultdict(list)
        """What happens to each incarnation, the last first."""
        for step in sorted(self._all, key=lambda step: -step.ends):
            if step.incarnation is not None:
                self._of[step.incarnation].append(step)
        self._closed_at: dict[int, Step] = {}
        """The tails that closed streams have had, each with the last answer that shows it."""
        for step in sorted(self._all, key=lambda step: step.ends):
            result = step.operation.result
            if step.closes or (isinstance(result, Tail | Content) and result.closed):
                self._closed_at |= dict.fromkeys(step.tails, step)
        self._answers: dict[tuple[str, int], list[Step]] = defaultdict(list)
        """The answers to each run of a producer, the last first."""
        for step in sorted(self._all, key=lambda step: -step.ends):
            call = step.operation.call
            if isinstance(call, Append) and call.producer is not None and not step.is_optional:
                self._answers[call.producer[:2]].append(step)
        writes = [step for step in self._all if not step.is_silent]
        self._deletes = [step for step in writes if isinstance(step.operation.call, Delete)]
        self._creates = [step for step in writes if isinstance(step.operation.call, Create)]

    # Preparation

    def _steps(self, history: Sequence[Operation]) -> list[Step]:
        seen = self._seen
        deletes = any(
            isinstance(op.call, Delete) and isinstance(op.result, Deleted | OutcomeUnknown) for op in history
        )
        steps: list[Step] = []
        for operation in history:
            call, result = operation.call, operation.result
            is_optional = isinstance(result, OutcomeUnknown)
            if isinstance(result, Unavailable) or (is_optional and isinstance(call, Head | Read)):
                continue
            message = call.message if isinstance(call, Append) else b""
            size = len(message)
            is_write = is_optional or isinstance(result, Deleted) or result == Created(new=True)
            step = Step(operation, 1 << len(steps), size, not is_write, is_optional)
            step.is_seen = message in seen.places
            has_one_writer = seen.writers[message] == 1
            if isinstance(result, Appended) and not result.duplicate:
                step.is_silent = False
                step.at = result.next_offset - size
            elif isinstance(result, Tail):
                step.at = result.offset
            elif isinstance(result, Content) and isinstance(call, Read):
                step.at = call.start + sum(map(len, result.messages))
                step.incarnation = seen.incarnation_of(result.messages)
            elif is_optional and step.is_seen and (has_one_writer or not deletes):
                step.at = seen.places[message][0]
            if step.is_seen and has_one_writer and not step.is_silent:
                step.incarnation = seen.incarnation(message)
            if not is_optional:
                step.deadline = operation.responded
            elif step.at is not None and has_one_writer:
                step.deadline = seen.times[message]
            steps.append(step)
        return steps

    def _in_order(self) -> list[Event]:
        """The events in the order of time. Of events at the same time, invocations come first."""
        moments = [(step.operation.invoked, 0, number) for number, step in enumerate(self._all)]
        moments += [
            (step.operation.responded, 1, number)
            for number, step in enumerate(self._all)
            if not step.is_optional
        ]
        events = []
        under_way: list[Step] = []
        for number, (_, kind, index) in enumerate(sorted(moments)):
            step = self._all[index]
            if kind == 0:
                step.begins = number
                if not step.is_optional:
                    under_way.append(step)
            silent = [one for one in under_way if one.is_silent]
            writes = [one for one in under_way if not one.is_silent]
            events.append(Event(step, kind == 1, number, silent, writes))
            if kind == 1:
                step.ends = number
                under_way.remove(step)
        return [event for event in events if event.is_response or event.step.is_silent]

    def _sort_in(self, step: Step) -> None:
        """Put an operation of unknown outcome where the search will look for it."""
        call = step.operation.call
        if not isinstance(call, Append):
            self._others[call].append(step)
            return
        for place in self._seen.places.get(call.message, ()):
            self._seen_at[place].append(step)
        if step.at is not None:
            return
        if call.close:
            self._others[call].append(step)
            return
        self._unseen.append(step)
        if call.producer is not None:
            self._of_producers[call.producer[:2]][call].append(step)

    # The search

    def succeeds(self) -> bool:
        """Whether there is a linearization."""
        start: Configuration = (None, 0)
        failed: set[tuple[int, Configuration]] = set()
        stack = [iter([start])]
        while stack:
            configuration = next(stack[-1], None)
            if configuration is None:
                stack.pop()
                continue
            depth = len(stack) - 1
            if depth == len(self._events):
                return True
            if (depth, configuration) in failed:
                continue
            failed.add((depth, configuration))  # unless this way succeeds
            stack.append(self._after(self._events[depth], configuration))
        return False

    def _after(self, event: Event, configuration: Configuration) -> Iterator[Configuration]:
        """The configurations after an event."""
        state, done = configuration
        bit = event.step.bit
        if event.is_response:
            if done & bit:
                yield state, done & ~bit
            else:
                self._note(event, state)
                yield from self._orders(event, configuration)
        else:
            fits, _ = event.step.applied(state, self.empty)
            yield state, done | bit if fits else done

    def _note(self, event: Event, state: State) -> None:
        """Remember how far the search came."""
        time = event.step.operation.responded
        if time > self.last_response:
            self.last_response = time
            self.stuck.clear()
        if time == self.last_response:
            self.stuck.add(state)

    def _orders(self, event: Event, configuration: Configuration) -> Iterator[Configuration]:
        """What every order leads to that ends with the answered operation; few optional ones come first.

        `before` has the states before each of the optional operations that have taken effect last.
        """
        bit = event.step.bit
        visited = set()
        queue: deque[tuple[State, int, tuple[State, ...]]] = deque([(*configuration, ())])
        while queue:
            state, done, before = queue.popleft()
            if (state, done, not before) in visited:
                continue
            visited.add((state, done, not before))
            self.steps_taken += 1
            if self.steps_taken > STEPS_MAX:
                raise Undecided(f"after {STEPS_MAX} steps")
            for step in event.writes:
                if done & step.bit:
                    continue
                fits, after = self._applied(event, step, state, done)
                if not fits or (before and self._fits_one_of(before, step)):
                    continue
                now_done = self._with_silent(event, after, done | step.bit)
                if now_done & bit:
                    yield after, now_done & ~bit
                else:
                    queue.appendleft((after, now_done, ()))
            for after, used in self._optional(event, state, done):
                now_done = self._with_silent(event, after, done | used)
                if now_done & bit:
                    yield after, now_done & ~bit
                else:
                    is_enabling = now_done != done | used
                    is_other = after is None  # a stream that is created now may be as long as the earlier one
                    queue.append((after, now_done, () if is_enabling or is_other else (*before, state)))

    def _applied(self, event: Event, step: Step, state: State, done: int) -> tuple[bool, State]:
        """Whether an operation may take effect now, and the state after it."""
        fits, after = step.applied(state, self.empty)
        if not fits or state is None or state == after:
            return fits, after
        incarnation = self._incarnation(state)
        if after is None:
            left = self._of[incarnation] if incarnation is not None else ()
            return not any(self._is_left(event, one, done) for one in left), after
        call, start = step.operation.call, state.messages.tail
        if not isinstance(call, Append) or not call.message:
            return True, after
        if start < self._seen.shown_to[incarnation]:
            return self._seen.contents[incarnation].get(start) == call.message, after
        if step.is_optional and start not in self._seen.places.get(call.message, ()):
            end = after.messages.tail
            if not call.close and not any(one.may_follow(call, end) for one in self._under_way(event, done)):
                return False, after
            return self._is_gap(event, state, end, done, self._same_stream_until(event, done)), after
        if step.incarnation is None or incarnation is not None:
            return step.incarnation is None or incarnation == step.incarnation, after
        place = step.at or 0
        earlier = (one for one in self._of[step.incarnation] if place > (one.at or 0)) if place else ()
        return not any(self._is_left(event, one, done) for one in earlier), after

    def _incarnation(self, state: Stream) -> int | None:
        messages: Messages | None = state.messages
        while messages is not None:
            found = None if messages.last is None else self._seen.incarnation(messages.last)
            if found is not None:
                return found
            messages = messages.before
        return None

    @staticmethod
    def _under_way(event: Event, done: int) -> list[Step]:
        """The operations under way that have not taken effect."""
        return [step for step in (*event.silent, *event.writes) if not done & step.bit]

    @staticmethod
    def _is_left(event: Event, step: Step, done: int) -> bool:
        """Whether an operation has not taken effect."""
        return not (done & step.bit or step.ends < event.number)

    def _fits_one_of(self, states: tuple[State, ...], step: Step) -> bool:
        """Whether an operation needed no optional one before it, or fewer. A close may need one anyway."""
        return not step.closes and any(step.applied(state, self.empty)[0] for state in states)

    def _with_silent(self, event: Event, state: State, done: int) -> int:
        """Let the operations without effect that agree with a new state take effect."""
        for step in event.silent:
            if not done & step.bit and step.applied(state, self.empty)[0]:
                done |= step.bit
        return done

    def _optional(self, event: Event, state: State, done: int) -> Iterator[Configuration]:
        """What operations of unknown outcome may lead to now: the state, and the bit of the operation."""
        steps: list[Step] = []
        if state is not None:
            steps += self._seen_at.get(state.messages.tail, ())
            if not state.closed:
                for end in self._gap_ends(event, state, done):
                    yield state._replace(messages=state.messages.and_unseen(end - state.messages.tail)), 0
        for alike in (*self._others.values(), *self._of_awaited_producers(event, done)):
            steps += [step for step in alike if not done & step.bit][:1]
        for step in steps:
            if step.begins < event.number and not done & step.bit:
                fits, after = self._applied(event, step, state, done)
                if fits:
                    yield after, step.bit

    def _of_awaited_producers(self, event: Event, done: int) -> Iterator[list[Step]]:
        """Appends of unknown outcome by producers that another answer depends on, alike ones together."""
        for run, calls in self._of_producers.items():
            if any(self._is_left(event, answered, done) for answered in self._answers.get(run, ())):
                yield from calls.values()

    def _gap_ends(self, event: Event, state: Stream, done: int) -> Iterator[int]:
        """The tails that unseen appends of unknown outcome may lead to and that another operation needs."""
        tail = state.messages.tail
        if tail < self._seen.shown_to[self._incarnation(state)]:
            return
        wanted = {at for step in self._under_way(event, done) for at in step.tails}
        for at, steps in self._seen_at.items():
            if at > tail and any(step.begins < event.number and not done & step.bit for step in steps):
                wanted.add(at)
        for run in self._of_producers:
            duplicates = (step for step in self._answers[run] if step.is_silent)
            wanted |= {at for one in duplicates if self._is_left(event, one, done) for at in one.tails}
        closes = [one for steps in self._others.values() for one in steps if one.closes]
        if any(one.begins < event.number and not done & one.bit for one in closes):
            wanted |= {at for at, step in self._closed_at.items() if self._is_left(event, step, done)}
            wanted |= {at - one.size for at in wanted for one in closes}
        sums = self._sums[bisect_left(self._unseen, event.number, key=lambda step: step.begins)]
        certain = self._same_stream_until(event, done)
        for end in wanted:
            if end > tail and sums >> end - tail & 1 and self._is_gap(event, state, end, done, certain):
                yield end

    def _same_stream_until(self, event: Event, done: int) -> float:
        """What is answered before this time happened to the stream that is there now, if one is.

        Another one can be there only after a deletion and a creation that have not taken effect.
        """
        times = [
            [step.operation.invoked for step in steps if self._is_left(event, step, done)]
            for steps in (self._deletes, self._creates)
        ]
        return max(min(some, default=INFINITE) for some in times)

    def _is_gap(self, event: Event, state: Stream, end: int, done: int, certain: float) -> bool:
        """Whether nothing that must still happen to this stream has its place between tail and end."""
        start = state.messages.tail
        incarnation = self._incarnation(state)
        for place in range(bisect_left(self._places, start), bisect_left(self._places, end)):
            step = self._placed[place]
            is_here = step.deadline < certain or (incarnation is not None and incarnation == step.incarnation)
            if is_here and (step.at != start or step.size) and self._is_left(event, step, done):
                return False
        return True


class Seen:
    """What the reads of a history have shown of each message."""

    def __init__(self, history: Sequence[Operation]) -> None:
        self.places: dict[bytes, list[int]] = {}
        """Where it is: one offset, unless retries of a producer have stored it in several incarnations."""
        self.times: dict[bytes, float] = {}
        """The earliest response that shows it."""
        self.writers = Counter(op.call.message for op in history if isinstance(op.call, Append))
        self._groups: dict[bytes, int] = {}
        self._same: list[int] = []
        self._from_beginning: set[int] = set()
        reads = []
        for operation in sorted(history, key=lambda operation: operation.responded):
            call, result = operation.call, operation.result
            if isinstance(call, Read) and isinstance(result, Content):
                self._add(call.start, result.messages, operation.responded)
                reads.append((call.start, result.messages))
        self._whole = {self._root(number) for number in self._from_beginning}
        self.shown_to: dict[int | None, int] = defaultdict(int)
        """How much of each incarnation reads have shown, from its beginning on without a gap."""
        self.contents: dict[int | None, dict[int, bytes]] = defaultdict(dict)
        for start, messages in sorted(reads, key=lambda read: (read[0], -len(read[1]))):
            self._add_content(start, messages)

    def _add(self, offset: int, messages: tuple[bytes, ...], time: float) -> None:
        group, begins_at = None, offset
        for message in messages:
            if message not in self.places:
                self.places[message] = [offset]
                self.times[message] = time
            if self.writers[message] != 1:
                if offset not in self.places[message]:
                    self.places[message].append(offset)
                offset += len(message)
                continue
            offset += len(message)
            known = self._group(message)
            if group is None:
                group = known
            if group is None:
                group = len(self._same)
                self._same.append(group)
            if known is not None:
                self._same[known] = group
            self._groups[message] = group
        if group is not None and begins_at == 0:
            self._from_beginning.add(group)

    def _add_content(self, start: int, messages: tuple[bytes, ...]) -> None:
        incarnation = self.incarnation_of(messages)
        shown_to = self.shown_to[incarnation]
        if incarnation is None or start > shown_to or start + sum(map(len, messages)) <= shown_to:
            return
        for message in messages:
            self.contents[incarnation].setdefault(start, message)
            start += len(message)
        self.shown_to[incarnation] = start

    def incarnation_of(self, messages: tuple[bytes, ...]) -> int | None:
        """The incarnation of the messages of a read."""
        known = (self.incarnation(message) for message in reversed(messages))
        return next((number for number in known if number is not None), None)

    def incarnation(self, message: bytes) -> int | None:
        """A number for the incarnation of a message, if that is known.

        The message was appended only once, and a read from the beginning has shown what it was shown with:
        others may be of the same incarnation without a read that shows both.
        """
        number = self._group(message)
        return number if number in self._whole else None

    def _group(self, message: bytes) -> int | None:
        """A number for the messages that reads have shown together with this one, directly or not."""
        number = self._groups.get(message)
        return None if number is None else self._root(number)

    def _root(self, number: int) -> int:
        while self._same[number] != number:
            number = self._same[number]
        return number


def explanation(prefix: list[Operation], time: float, search: Search, history: Sequence[Operation]) -> str:
    """Which answer has no explanation, and what happened around it."""
    answered = sorted(
        (op for op in prefix if is_answered(op) and op.responded < time), key=lambda op: op.responded
    )
    last = [op for op in prefix if is_answered(op) and op.responded == time]
    under_way = [op for op in history if op.invoked <= time < op.responded]
    shown = {message for op in last if isinstance(op.result, Content) for message in op.result.messages}
    states = [f"{'closed' if one.closed else 'open'} at {one.messages.tail}" for one in search.stuck if one]
    states += ["not there"] if None in search.stuck else []
    parts: list[tuple[str, Sequence[object]]] = [
        ("No order of the operations explains this answer:", last),
        (f"The search ends at {search.last_response:.6f}. Before, the stream may have been:", states),
        ("Appends that it does not show, or should not:", not_as_shown(last, shown, history)),
        ("Operations under way then, with the answers that they had later:", under_way),
        ("The last answers before it:", answered[-10:]),
    ]
    lines: list[str] = []
    for title, some in parts:
        lines += [title, *(f"    {one}" for one in list(some)[:20])] if some else []
    return "\n".join(lines)


def not_as_shown(last: list[Operation], shown: set[bytes], history: Sequence[Operation]) -> list[Operation]:
    """The last appends before a read that it does not show, and those of its messages that have no effect."""
    found = []
    for operation in history:
        call, result = operation.call, operation.result
        if isinstance(call, Append) and call.message:
            is_missing = call.message not in shown and any(
                isinstance(read.call, Read)
                and isinstance(result, Appended)
                and operation.responded < read.invoked
                and result.next_offset > read.call.start
                for read in last
            )
            if is_missing or (call.message in shown and isinstance(result, Unavailable)):
                found.append(operation)
    return found[-5:]
