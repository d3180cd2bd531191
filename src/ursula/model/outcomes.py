"""Outcomes: what a command or a read came to. A refusal is an outcome like any other.

They are plain encodable values: a group may one day live in another process.
"""

from msgspec import Struct


class Outcome(Struct, gc=False):
    """What every outcome has in common: nothing but being one."""


class Refused(Outcome):
    """Nothing was done. The code is part of the interface; the rest is what the client needs to know."""

    code: str
    message: str
    incarnation: str | None = None
    tail: int | None = None
    closed: bool = False
    epoch: int | None = None
    expected_seq: int | None = None
    received_seq: int | None = None


class BucketCreated(Outcome):
    """A new bucket."""

    bucket: str


class Created(Outcome):
    """A stream exists as asked: `new` if this command made it."""

    new: bool
    incarnation: str
    content_type: str
    tail: int
    closed: bool
    deadline: int | None


class Appended(Outcome):
    """The messages are in the stream: by this request, or (`duplicate`) by an earlier try of it."""

    incarnation: str
    tail: int
    next_offset: int
    closed: bool
    duplicate: bool = False
    epoch: int | None = None
    seq: int | None = None


class Ended(Outcome):
    """A stream was deleted or has expired."""

    incarnation: str


class Renewed(Outcome):
    """A stream's window was moved."""

    deadline: int


class Ignored(Outcome):
    """The command no longer applied: what it was about has changed."""


class Description(Outcome):
    """What HEAD tells of a stream."""

    incarnation: str
    content_type: str
    tail: int
    closed: bool
    ttl_seconds: int | None
    expires_at: int | None


class Page(Outcome):
    """A stretch of a stream: its messages or parts of them, and where it lies."""

    incarnation: str
    content_type: str
    media_type: str
    chunks: list[bytes]
    offset: int
    next_offset: int
    tail: int
    closed: bool


AnyOutcome = Refused | BucketCreated | Created | Appended | Ended | Renewed | Ignored
