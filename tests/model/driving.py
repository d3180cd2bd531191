"""Sends commands to a state the way a group does: one log entry after the other."""

from collections.abc import Iterable

from msgspec.structs import astuple

from ursula.model.commands import AnyCommand, Append, Create, ForkPoint, PlainAppend, PublishSnapshot
from ursula.model.offsets import BEGINNING
from ursula.model.outcomes import (
    AnyOutcome,
    Appended,
    Created,
    Description,
    Page,
    Refused,
    SnapshotPublished,
)
from ursula.model.state import State
from ursula.model.stream.stream import Stream
from ursula.model.text.media_type import JSON

SECOND = 1_000_000
START = 1_700_000_000 * SECOND


def as_proposed(command: AnyCommand) -> AnyCommand:
    """A command as the node has it that proposed it; from the log it comes as it is given here."""
    if not isinstance(command, Append) or len(command.messages) != 1 or command.media_type == JSON:
        return command
    plain = Append(command.bucket, command.stream, command.messages, command.media_type)
    return PlainAppend(*astuple(plain)) if command == plain else command


class Driver:
    """A state with one bucket `b`, and a clock that stands still unless it is moved."""

    def __init__(self) -> None:
        self.state = State(3)
        self.now = START

    def send(self, *commands: AnyCommand) -> list[AnyOutcome]:
        """Apply one entry that holds these commands."""
        self.state.begin(self.state.position + 1, self.now)
        return [self.state.apply(command, index) for index, command in enumerate(commands)]

    def do(self, command: AnyCommand) -> AnyOutcome:
        """Apply one command in an entry of its own."""
        return self.send(command)[0]

    def create(self, name: str, *messages: bytes, content_type: str | None = "text/plain") -> Created:
        """Make a stream that is sure to be new."""
        outcome = self.do(Create("b", name, content_type, messages, make_bucket=True))
        assert isinstance(outcome, Created)
        assert outcome.new
        return outcome

    def append(self, name: str, *messages: bytes, media_type: str = "text/plain") -> Appended:
        """Append what is sure to be taken."""
        outcome = self.do(Append("b", name, messages, media_type))
        assert isinstance(outcome, Appended)
        return outcome

    def fork(self, name: str, source: str, offset: int | None = None, sub_offset: int = 0) -> Created:
        """Make a fork that is sure to be possible."""
        outcome = self.do(Create("b", name, None, fork=ForkPoint(source, offset, sub_offset)))
        assert isinstance(outcome, Created)
        return outcome

    def publish(self, name: str, offset: int, blob: str = "blob", trim: bool = True) -> SnapshotPublished:
        """Publish a snapshot that is sure to be taken."""
        outcome = self.do(publication(name, offset, blob, trim))
        assert isinstance(outcome, SnapshotPublished)
        return outcome

    def refusal(self, command: AnyCommand) -> Refused:
        """Apply what is sure to be refused."""
        outcome = self.do(command)
        assert isinstance(outcome, Refused)
        return outcome

    def code(self, command: AnyCommand) -> str:
        """Why it is refused."""
        return self.refusal(command).code

    def page(self, name: str, offset: int = 0, bytes_max: int = 1_000_000, whole: bool = False) -> Page:
        """A read that is sure to work."""
        page = self.state.reads.read("b", name, offset, bytes_max, whole)
        assert isinstance(page, Page)
        return page

    def content(self, name: str) -> bytes:
        """All bytes of a stream that are kept."""
        return b"".join(self.page(name, BEGINNING).chunks)

    def described(self, name: str) -> Description:
        """What a stream that is sure to be there is now."""
        description = self.state.reads.describe("b", name)
        assert isinstance(description, Description)
        return description

    def stream(self, name: str) -> Stream:
        """The stream itself, also a hidden one."""
        stream = self.state.find("b", name)
        assert stream is not None
        return stream

    def hidden(self, name: str) -> str | None:
        """Why a client sees no stream at a name; None if it sees one."""
        described = self.state.reads.describe("b", name)
        return described.code if isinstance(described, Refused) else None


def publication(
    name: str,
    offset: int,
    blob: str = "blob",
    trim: bool = True,
    content_type: str = "text/plain",
    digest: str = "sha256:aa",
    incarnation: str | None = None,
) -> PublishSnapshot:
    """The publication of a snapshot in the bucket `b`."""
    return PublishSnapshot("b", name, offset, blob, content_type, 3, digest, trim, incarnation)


def codes(outcomes: Iterable[AnyOutcome]) -> list[str]:
    """The codes of refusals."""
    return [outcome.code for outcome in outcomes if isinstance(outcome, Refused)]
