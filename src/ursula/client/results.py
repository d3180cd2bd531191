"""What operations return, read from the headers of answers."""

import json
import re
from dataclasses import dataclass
from typing import Any

from .steps import Answer

BEGINNING = "-1"

_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\r\n]*")


def media_type(content_type: str) -> str:
    """A content type without its parameters."""
    return content_type.partition(";")[0].strip().lower()


def is_json(content_type: str) -> bool:
    """Whether a stream of this type holds JSON messages."""
    return media_type(content_type) == "application/json"


@dataclass(frozen=True, slots=True)
class Created:
    """A stream that now exists; `is_new` tells whether this request made it."""

    is_new: bool
    next_offset: str
    etag: str
    incarnation: str
    closed: bool
    record_start: int | None
    record_next: int | None

    @classmethod
    def of(cls, answer: Answer) -> "Created":
        """Read from an answer to PUT."""
        headers = answer.headers
        return cls(
            is_new=answer.status == 201,
            next_offset=headers.get("stream-next-offset", ""),
            etag=headers.get("etag", ""),
            incarnation=headers.get("stream-incarnation", ""),
            closed=answer.flag("stream-closed"),
            record_start=answer.number("stream-record-start"),
            record_next=answer.number("stream-record-next"),
        )


@dataclass(frozen=True, slots=True)
class Appended:
    """An append that is safely stored; `duplicate` tells that an earlier try had stored it already."""

    next_offset: str
    etag: str
    incarnation: str
    closed: bool
    duplicate: bool
    record_start: int | None
    record_next: int | None

    @classmethod
    def of(cls, answer: Answer, duplicate: bool = False) -> "Appended":
        """Read from an answer to POST."""
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
    """What a stream is now."""

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
        """Read from an answer to HEAD."""
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
    """A stretch of a stream, and where it leads."""

    data: bytes
    content_type: str
    next_offset: str
    up_to_date: bool
    closed: bool
    etag: str | None
    cursor: str | None
    incarnation: str

    @classmethod
    def of(cls, answer: Answer, offset: str) -> "Chunk":
        """Read from an answer to GET from this offset."""
        headers = answer.headers
        return cls(
            data=answer.body,
            content_type=headers.get("content-type", ""),
            next_offset=headers.get("stream-next-offset", offset),
            up_to_date=answer.flag("stream-up-to-date"),
            closed=answer.flag("stream-closed"),
            etag=headers.get("etag"),
            cursor=headers.get("stream-cursor"),
            incarnation=headers.get("stream-incarnation", ""),
        )

    def values(self) -> list[Any]:
        """The messages of a JSON stream, decoded."""
        values: list[Any] = json.loads(self.data) if self.data else []
        return values


@dataclass(frozen=True, slots=True)
class Message:
    """Something that was appended: a JSON value, or bytes as they came for any other stream.

    `next_offset` is the offset after it, to resume from. Several JSON values that came together share one:
    it is None but for the last of them.
    """

    value: Any
    next_offset: str | None


def messages(data: bytes, json_mode: bool, next_offset: str, decode: bool = True) -> list[Message]:
    """What a stretch of a stream holds, as messages; JSON values are decoded, or given as their text."""
    if not json_mode:
        return [Message(data, next_offset)] if data else []
    values = (json.loads(data) if decode else json_texts(data)) if data else []
    last = len(values) - 1
    return [Message(one, next_offset if index == last else None) for index, one in enumerate(values)]


def json_texts(array: bytes) -> list[str]:
    """The elements of a JSON array as they are written in it."""
    text = array.decode()
    texts = []
    at = _skip(text, text.index("[") + 1)
    while text[at] != "]":
        _, end = _DECODER.raw_decode(text, at)
        texts.append(text[at:end])
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)
    return texts


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return at if found is None else found.end()


def offset_or_none(answer: Answer, name: str) -> str | None:
    """A header that is an offset, or says none."""
    offset = answer.headers.get(name)
    return None if offset in (None, "none") else offset
