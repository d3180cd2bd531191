"""The replicated log on etcd, in miniature: nodes that propose and follow, a keeper that trims, and crashes.

etcd is what it promises to be: transactions one after another, reads at one revision, a watch that delivers
every change in order or says that its beginning was compacted, unless it falls silent. Everything around it
fails: requests arrive late, twice or never, answers are lost, etcd has no space, members freeze, nodes crash,
and the keeper's role moves in the middle of a flush. A position is a revision. Each rule that the log must
keep has a name and can be broken, to see that a loss would be noticed.
"""

import random
from dataclasses import dataclass, field
from typing import NamedTuple

RULES = (
    "an append compares the version of its proposer's key",
    "an append compares the generation",
    "a retry has the same number",
    "a new process is a new proposer",
    "only what was never sent is unavailable",
    "what a manifest has skipped is unknown",
    "what etcd has no space for is looked up",
    "a rejection counts only if nothing else is on its way",
    "trimming only moves forward",
    "trimming ends at a manifest that is there",
    "trimming deletes nothing after its end",
    "trimming waits for the nodes",
    "a start declares what it needs first",
    "after a compaction, the trimmed position is compared",
    "the trimmed position and the entries are read at one revision",
    "the watch continues at the revision of the read",
    "a manifest has the count at its position",
    "a silent watch is left for another member",
    "a read asks for the tail after it began",
    "the tail is that of a majority",
)

COUNT = "the count of entries is compared with the version of the head"
"""A rule that only notices when another one is broken."""


class Lost(Exception):
    """Something acknowledged is not there, is there twice or was not read, or two nodes disagree."""


class Stopped(Exception):
    """A node stopped, since the log is not what it has to be. This must not happen, but nothing is lost."""


class Late(Exception):
    """A node does not reach the end of the log, or has lost its place although the log had to wait for it."""


class Append(NamedTuple):
    """A transaction that appends an entry."""

    proposer: str
    number: int
    command: int
    generation: int


class Entry(NamedTuple):
    """An entry: the revision of its transaction, and the version that the head had after it."""

    position: int
    append: Append
    head_version: int


class Manifest(NamedTuple):
    """What the store has of the log up to a position."""

    position: int
    entry_count: int
    commands: tuple[int, ...]


class Etcd:
    """The keys of the log, and their history."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.revision = 1
        self.generation = 1
        self.fenced_at: int | None = None
        self.history: list[Entry] = []
        """Every entry that was ever written."""
        self.entries: dict[tuple[str, int], Entry] = {}
        self.versions: dict[str, int] = {}
        self.trimmed = 0
        self.compacted = 0
        self.needed_after: dict[int, int] = {}
        """What each node has declared."""

    def append(self, request: Append) -> int:
        """Write an entry, if it is not there yet; returns the version of the proposer's key."""
        world = self.world
        version = self.versions.get(request.proposer, 0)
        is_next = version == request.number - 1
        if not is_next and world.keeps("an append compares the version of its proposer's key"):
            return version
        if self.generation != request.generation and world.keeps("an append compares the generation"):
            return version
        self.revision += 1
        if self.fenced_at is not None:
            raise Lost(f"{request} was written to a log that was fenced")
        self.versions[request.proposer] = version + 1
        entry = Entry(self.revision, request, len(self.history) + 1)
        self.history.append(entry)
        self.entries[request.proposer, request.number] = entry
        return version + 1

    def fence(self) -> None:
        """A restore from the store begins a new log elsewhere."""
        self.revision += 1
        self.generation += 1
        self.fenced_at = self.revision

    def declare(self, node: int, after: int) -> int:
        """Say what a node needs; returns the trimmed position."""
        self.revision += 1
        self.needed_after[node] = after
        return self.trimmed

    def trim(self, upto: int, last: dict[str, int]) -> None:
        """Trim the log: of each proposer, delete the entries up to a number."""
        world = self.world
        if self.trimmed >= upto and world.keeps("trimming only moves forward"):
            return
        self.revision += 1
        self.trimmed = upto
        bounded = world.keeps("trimming deletes nothing after its end")
        for proposer, number in list(self.entries):
            if not bounded or number <= last.get(proposer, 0):
                del self.entries[proposer, number]

    def compact(self, revision: int) -> None:
        self.compacted = max(self.compacted, revision)

    def after(self, position: int) -> list[Entry]:
        """The entries after a position that are still there."""
        return sorted(entry for entry in self.entries.values() if entry.position > position)


@dataclass
class Read:
    """A request on a node that must see everything that was acknowledged before it."""

    acknowledged: frozenset[int]
    tail: int | None = None


@dataclass
class Flush:
    """A flush under way, and how far it came."""

    manifest: Manifest
    before: int
    """The position of the manifest before it."""
    is_stored: bool = False
    upto: int | None = None
    last: dict[str, int] = field(default_factory=dict)
    """The last number of each proposer up to there."""
    is_trimmed: bool = False


class Node:
    """One process: it proposes, follows and applies, and flushes while it is the keeper."""

    def __init__(self, world: "World", number: int) -> None:
        self.world = world
        self.number = number
        self.boots = 0
        self.boot()

    # A process begins

    def boot(self) -> None:
        """A process begins, also after a crash. What was not answered is unknown."""
        self.boots += 1
        is_new = self.world.keeps("a new process is a new proposer")
        self.proposer = f"{self.number}-{self.boots if is_new else 1}"
        self.last_number = 0
        self.queue: list[int] = []
        self.sent: Append | None = None
        """The append that etcd has not answered: one at a time."""
        self.attempts = 0
        """How often it was sent."""
        self.reads: list[Read] = []
        self.last_tail: int | None = None
        self.waiting: dict[int, int] = {}
        """Commands by number whose clients wait until the entry is applied."""
        self.generation = 1
        self.is_fenced = False
        self.flush: Flush | None = None
        self.begin_start()

    def begin_start(self) -> None:
        """Forget the state; the next steps load one."""
        self.is_started = False
        self.loaded: Manifest | None = None
        self.is_protected = False
        self.watch_from = 0
        self.is_silent = False
        self.trimmed_before: int | None = None

    def start(self) -> None:
        """The next step of a start: declare what is needed, load a manifest, read the log after it."""
        world, etcd = self.world, self.world.etcd
        if not self.is_protected and world.keeps("a start declares what it needs first"):
            newest = world.manifests[-1].position
            self.is_protected = etcd.declare(self.number, newest) <= newest
        elif self.loaded is None:
            self.loaded = world.manifests[-1]
        else:
            manifest = self.loaded
            if etcd.trimmed > manifest.position and world.manifests[-1].position < etcd.trimmed:
                raise Lost(f"the log is trimmed to {etcd.trimmed}, and no manifest is as new as that")
            self.position, self.count = manifest.position, manifest.entry_count
            self.commands = list(manifest.commands)
            self.watches = False
            self.is_started = True
            etcd.declare(self.number, self.position)
            self.read()

    def fall_behind(self) -> None:
        """The log begins after this node's position: start again, in the same process."""
        if not self.world.is_too_long:
            raise Late(f"node {self.number} needed the entries after {self.position}")
        for command in self.waiting.values():
            is_unknown = self.world.keeps("what a manifest has skipped is unknown")
            self.world.answer(command, "unknown" if is_unknown else "not written")
        self.waiting.clear()
        self.flush = None
        self.begin_start()

    # Proposing

    def propose(self) -> None:
        """Take a command from a client, or send the next one."""
        if self.is_fenced:
            return
        if self.sent is None and self.queue:
            command = self.queue.pop(0)
            self.last_number += 1
            self.sent = Append(self.proposer, self.last_number, command, self.generation)
            self.waiting[self.last_number] = command
            self.attempts = 1
            self.world.network.append(self.sent)
        elif len(self.queue) < 2:
            self.world.commands += 1
            self.queue.append(self.world.commands)

    def retry(self) -> None:
        """No answer came: send it again."""
        if self.sent is None or self.is_fenced:
            return
        if not self.world.keeps("a retry has the same number"):
            self.last_number += 1
            self.sent = self.sent._replace(number=self.last_number)
            self.waiting[self.last_number] = self.sent.command
        self.attempts += 1
        self.world.network.append(self.sent)

    def give_up(self) -> None:
        """The deadline of a client has passed."""
        world = self.world
        if self.queue:
            world.answer(self.queue.pop(0), "not written")
        elif self.waiting:
            number = min(self.waiting)
            is_unknown = world.keeps("only what was never sent is unavailable")
            world.answer(self.waiting.pop(number), "unknown" if is_unknown else "not written")

    def take_answer(self, request: Append, version: int) -> None:
        """The answer of etcd to an append."""
        if self.sent != request:
            return
        number = request.number
        if version >= number:
            self.sent = None
        elif self.world.etcd.generation != self.generation:
            self.is_fenced = True
        elif version < number - 1:
            raise Stopped(f"the version of {request} is {version}")

    def take_rejection(self, request: Append) -> None:
        """etcd has no space, but may have written the append that has exceeded it."""
        world, number = self.world, request.number
        if self.sent != request:
            return
        if self.attempts > 1 and world.keeps("a rejection counts only if nothing else is on its way"):
            return
        is_written = world.etcd.versions.get(self.proposer, 0) == number
        if is_written and world.keeps("what etcd has no space for is looked up"):
            self.sent = None
            return
        self.sent, self.last_number = None, number - 1
        command = self.waiting.pop(number, None)
        if command is not None:
            world.answer(command, "not written")

    # Reading

    def read_on(self) -> None:
        """The next step of the oldest read: it begins, finds out the tail, and ends when that is applied."""
        world, etcd = self.world, self.world.etcd
        if not self.reads:
            self.reads.append(Read(world.acknowledged()))
            if not world.keeps("a read asks for the tail after it began"):
                self.reads[0].tail = self.last_tail
        elif self.reads[0].tail is None:
            known = len(etcd.history)
            if not world.keeps("the tail is that of a majority"):
                known -= world.random.randint(0, 2)  # of a member that lags
            self.reads[0].tail = self.last_tail = etcd.history[known - 1].position if known > 0 else 0
        elif self.position >= self.reads[0].tail:
            missing = self.reads.pop(0).acknowledged.difference(self.commands)
            if missing:
                raise Lost(f"a read on node {self.number} did not see {missing}")

    # Following

    def follow(self) -> None:
        """Apply the next entry of the watch, or read again where there is none."""
        etcd = self.world.etcd
        if self.is_silent:
            tail = etcd.history[-1].position if etcd.history else 0
            if self.position < tail and self.world.keeps("a silent watch is left for another member"):
                self.watches = self.is_silent = False
            return
        if not self.watches:
            if self.watch_from <= etcd.compacted:
                self.read()
                return
            self.watches = True
        entry = next((entry for entry in etcd.history if entry.position >= self.watch_from), None)
        if entry is not None:
            self.watch_from = entry.position + 1
            self.apply([entry], entry.head_version)

    def read(self) -> None:
        """Read the trimmed position, and the entries after this node's position."""
        world, etcd = self.world, self.world.etcd
        trimmed = etcd.trimmed
        if not world.keeps("the trimmed position and the entries are read at one revision"):
            if self.trimmed_before is None:
                self.trimmed_before = trimmed
                self.watch_from = 0
                return
            trimmed, self.trimmed_before = self.trimmed_before, None
        if trimmed > self.position and world.keeps("after a compaction, the trimmed position is compared"):
            self.fall_behind()
            return
        revision = etcd.revision
        self.apply(etcd.after(self.position), len(etcd.history))
        if not world.keeps("the watch continues at the revision of the read"):
            revision += world.random.randint(0, 2)
        self.watch_from = revision + 1
        self.watches = False

    def apply(self, entries: list[Entry], count: int) -> None:
        """Apply entries; the count is that of the whole log after them."""
        world = self.world
        if self.count + len(entries) != count and world.keeps(COUNT):
            raise Stopped(f"node {self.number} has {self.count} + {len(entries)} entries of {count}")
        for entry in entries:
            self.position = entry.position
            self.count += 1
            self.commands.append(entry.append.command)
            world.check(self)
            if entry.append.proposer == self.proposer:
                command = self.waiting.pop(entry.append.number, None)
                if command is not None:
                    world.answer(command, "acknowledged")

    # Flushing

    def next_of_flush(self) -> None:
        """The next step of a flush: take the cut, store the manifest, look who needs what, trim, compact."""
        world, etcd, flush = self.world, self.world.etcd, self.flush
        newest = world.manifests[-1].position
        if flush is None:
            if self.position > newest and world.keeper is self:
                self.flush = Flush(Manifest(self.position, self.count, tuple(self.commands)), newest)
        elif not flush.is_stored and world.keeps("trimming ends at a manifest that is there"):
            self.store(flush.manifest)
            flush.is_stored = True
        elif flush.upto is None:
            flush.upto = flush.before if flush.is_stored else flush.manifest.position
            if not world.is_too_long and world.keeps("trimming waits for the nodes"):
                flush.upto = min([flush.upto, *etcd.needed_after.values()])
            for entry in etcd.entries.values():
                if entry.position <= flush.upto:
                    proposer, number = entry.append[:2]
                    flush.last[proposer] = max(flush.last.get(proposer, 0), number)
        elif not flush.is_trimmed:
            etcd.trim(flush.upto, flush.last)
            flush.is_trimmed = True
        else:
            etcd.compact(flush.upto)
            if not flush.is_stored:
                self.store(flush.manifest)
            self.flush = None

    def store(self, manifest: Manifest) -> None:
        world = self.world
        if not world.keeps("a manifest has the count at its position"):
            manifest = manifest._replace(entry_count=self.count)
        world.manifests = sorted({*world.manifests, manifest})


class World:
    """etcd, the nodes, the store, the network between them, and what every client was answered."""

    def __init__(self, seed: int, *broken: str) -> None:
        self.random = random.Random(seed)
        self.broken = broken
        self.etcd = Etcd(self)
        self.manifests = [Manifest(0, 0, ())]
        self.network: list[Append] = []
        self.commands = 0
        self.answers: dict[int, str] = {}
        self.is_too_long = self.random.random() < 0.5
        """Trimming does not wait for the nodes."""
        self.nodes = [Node(self, number) for number in range(self.random.choice((2, 2, 3)))]
        self.keeper = self.nodes[0]
        self.asleep: Node | None = None
        """A node that does nothing for a while, in the middle of whatever it had begun."""
        for node in self.nodes:
            self.bring_up(node)

    def keeps(self, rule: str) -> bool:
        """Whether this rule is kept."""
        if rule not in RULES and rule != COUNT:
            raise KeyError(rule)
        return rule not in self.broken

    def answer(self, command: int, answer: str) -> None:
        """Answer a client, once."""
        self.answers.setdefault(command, answer)

    def acknowledged(self) -> frozenset[int]:
        """What was acknowledged so far."""
        return frozenset(one for one, answer in self.answers.items() if answer == "acknowledged")

    def check(self, node: Node) -> None:
        """What a node has applied is the beginning of the history, up to its position."""
        history = self.etcd.history
        if len(node.commands) > len(history) or history[len(node.commands) - 1].position != node.position:
            raise Lost(f"node {node.number} skipped an entry before {node.position}")

    def bring_up(self, node: Node) -> None:
        """Let a node start, and follow to the end of the log."""
        for _ in range(len(self.etcd.history) + 10):
            if not node.is_started:
                node.start()
            elif node.count < len(self.etcd.history):
                node.follow()
            elif node.reads:
                node.read_on()
            else:
                return
        raise Late(f"node {node.number} does not reach the end of the log")

    def deliver(self) -> None:
        """A request reaches etcd: perhaps again, and perhaps its answer is lost."""
        choose = self.random
        place = choose.randrange(len(self.network))
        request = self.network[place]
        if choose.random() < 0.05:
            self.network.pop(place)
            if choose.random() < 0.3:
                self.etcd.append(request)
            for node in self.nodes:
                if node.proposer == request.proposer:
                    node.take_rejection(request)
            return
        if choose.random() < 0.7:
            self.network.pop(place)
        version = self.etcd.append(request)
        for node in self.nodes:
            if node.proposer == request.proposer and choose.random() < 0.7:
                node.take_answer(request, version)

    def step(self) -> None:
        """Something happens."""
        choose = self.random
        node = choose.choice([node for node in self.nodes if node is not self.asleep])
        chance = choose.random()
        if chance < 0.2 and self.network:
            self.deliver()
        elif chance < 0.35:
            node.propose()
        elif chance < 0.38:
            node.retry()
        elif chance < 0.41:
            node.give_up()
        elif chance < 0.42:
            node.boot()
        elif chance < 0.44:
            self.keeper = node
        elif chance < 0.46:
            self.asleep = None if self.asleep else node
        elif chance < 0.48:
            self.etcd.compact(choose.randint(self.etcd.trimmed, self.etcd.revision))
        elif chance < 0.482 and self.etcd.fenced_at is None:
            self.etcd.fence()
        elif not node.is_started:
            node.start()
        elif chance < 0.51:
            node.watches = False
        elif chance < 0.515:
            node.is_silent = node.watches
        elif chance < 0.55:
            node.read_on()
        elif chance < 0.58:
            self.etcd.declare(node.number, node.position)
        elif chance < 0.84:
            node.next_of_flush()
        else:
            node.follow()

    def run(self, steps: int) -> None:
        """Let things happen in random order; afterwards everything must be there."""
        for _ in range(steps):
            self.step()
        written = [entry.append.command for entry in self.etcd.history]
        there = set(written)
        if len(there) < len(written):
            raise Lost("a command is there twice")
        for command, answer in self.answers.items():
            if answer == "acknowledged" and command not in there:
                raise Lost(f"command {command} was acknowledged and is not there")
            if answer == "not written" and command in there:
                raise Lost(f"command {command} was answered as not written and is there")
        for node in [*self.nodes, Node(self, len(self.nodes))]:
            self.bring_up(node)
            if node.commands != written:
                raise Lost(f"node {node.number} has {node.commands} instead of {written}")
