"""The results of operations, read from the headers and bodies of responses."""

from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from .connection.steps import Answer
from .errors import InvalidAnswer
from .formats.json_text import decode, elements

BEGINNING = "-1"
OFFSET_DIGITS = 20


def media_type(content_type: str) -> str:
    """A content type without its parameters."""
    return content_type.partition(";")[0].strip().lower()


def is_json(content_type: str) -> bool:
    """Whether a stream of this type has JSON messages."""
    return media_type(content_type) == "application/json"


@dataclass(frozen=True, slots=True)
class Created:
    """A stream that now exists; `is_new` is true if this request created it."""

    is_new: bool
    next_offset: str
    etag: str
    incarnation: str
    closed: bool
    record_start: int | None
    record_next: int | None
    ignored_attributes: tuple[str, ...] = ()

    @classmethod
    def of(cls, answer: Answer) -> "Created":
        """Read the response to a PUT."""
        headers = answer.headers
        return cls(
            is_new=answer.status == 201,
            next_offset=headers.get("stream-next-offset", ""),
            etag=headers.get("etag", ""),
            incarnation=headers.get("stream-incarnation", ""),
            closed=answer.flag("stream-closed"),
            record_start=answer.number("stream-record-start"),
            record_next=answer.number("stream-record-next"),
            ignored_attributes=ignored_attributes(answer),
        )


@dataclass(frozen=True, slots=True)
class Appended:
    """An append that is safely stored; `duplicate` is true if an earlier attempt had already stored it."""

    next_offset: str
    etag: str
    incarnation: str
    closed: bool
    duplicate: bool
    record_start: int | None
    record_next: int | None

    @classmethod
    def of(cls, answer: Answer, duplicate: bool = False) -> "Appended":
        """Read the response to a POST."""
        headers = answer.headers
        return cls(
            next_offset=headers.get("stream-next-offset", ""),
            etag=headers.get("etag", ""),
            incarnation=headers.get("stream-incarnation", ""),
            closed=answer.flag("stream-closed"),
            duplicate=duplicate,
            record_start=answer.number("stream-record-start"),
            record_next=answer.number("stream-record-next"),
        )


@dataclass(frozen=True, slots=True)
class StreamInfo:
    """The current state of a stream."""

    content_type: str
    next_offset: str
    etag: str
    incarnation: str
    closed: bool
    ttl_seconds: int | None
    expires_at: str | None
    earliest_offset: str | None
    snapshot_offset: str | None
    record_first: int | None
    record_next: int | None

    @classmethod
    def of(cls, answer: Answer) -> "StreamInfo":
        """Read the response to a HEAD."""
        headers = answer.headers
        return cls(
            content_type=headers.get("content-type", ""),
            next_offset=headers.get("stream-next-offset", ""),
            etag=headers.get("etag", ""),
            incarnation=headers.get("stream-incarnation", ""),
            closed=answer.flag("stream-closed"),
            ttl_seconds=answer.number("stream-ttl"),
            expires_at=headers.get("stream-expires-at"),
            earliest_offset=headers.get("stream-earliest-offset"),
            snapshot_offset=offset_or_none(answer, "stream-snapshot-offset"),
            record_first=answer.number("stream-record-first"),
            record_next=answer.number("stream-record-next"),
        )


@dataclass(frozen=True, slots=True)
class Chunk:
    """A contiguous range of a stream, and the offset after it."""

    data: bytes
    content_type: str
    next_offset: str
    up_to_date: bool
    closed: bool
    etag: str | None
    cursor: str | None
    incarnation: str
    path: str

    @classmethod
    def of(cls, answer: Answer, path: str) -> "Chunk":
        """Read the response to a GET of the stream at a path."""
        headers = answer.headers
        return cls(
            data=answer.body,
            content_type=headers.get("content-type", ""),
            next_offset=next_offset(answer),
            up_to_date=answer.flag("stream-up-to-date"),
            closed=answer.flag("stream-closed"),
            etag=headers.get("etag"),
            cursor=headers.get("stream-cursor"),
            incarnation=headers.get("stream-incarnation", ""),
            path=path,
        )

    def values(self) -> list[Any]:
        """The messages of a JSON stream, decoded."""
        try:
            return decode_array(self.data)
        except InvalidAnswer as error:
            error.path = self.path
            raise


@dataclass(frozen=True, slots=True)
class Message:
    """A message of a stream: a JSON value, or for any other stream, bytes as they arrived.

    `next_offset` is the offset after it, to resume from. When several JSON values arrive together, only the
    last of them has it; for the others it is None.
    """

    value: Any
    next_offset: str | None


def decode_array(data: bytes) -> list[Any]:
    """The values in a chunk of a JSON stream."""
    values = decode(data) if data else []
    if not isinstance(values, list):
        raise InvalidAnswer("the server sent a JSON value instead of an array of messages")
    return values


def messages(data: bytes, json_mode: bool, next_offset: str, decoding: bool = True) -> list[Message]:
    """The messages in a chunk of a stream. JSON values are decoded, or kept as text."""
    if not json_mode:
        return [Message(data, next_offset)] if data else []
    values = (decode_array(data) if decoding else elements(data)) if data else []
    last = len(values) - 1
    return [Message(one, next_offset if index == last else None) for index, one in enumerate(values)]


def next_offset(answer: Answer) -> str:
    """The offset after a read. It is required: without it a reader would read the same data forever."""
    offset = answer.headers.get("stream-next-offset")
    if not offset:
        raise InvalidAnswer("the response has no Stream-Next-Offset header: a proxy may have removed it")
    return str(offset)


def ignored_attributes(answer: Answer) -> tuple[str, ...]:
    """The names of attributes that the server did not store; if there are many, only the first ones."""
    listed = answer.headers.get("stream-attrs-ignored", "")
    names = (name for name in listed.split(", ") if name and not name.startswith("+"))
    return tuple(unquote(name) if name != '""' else "" for name in names)


def offset_or_none(answer: Answer, name: str) -> str | None:
    """A header that is an offset, or is missing or `none`."""
    offset = answer.headers.get(name)
    return None if offset in (None, "none") else offset


def padded_offset(offset: int) -> str:
    """An offset that JSON gives as a number, in the form that all other results have."""
    return str(offset).zfill(OFFSET_DIGITS)
