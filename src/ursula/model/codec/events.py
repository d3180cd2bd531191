"""The events of the journal: commands that are not appends, as JSON with the fields that a follower needs."""

from typing import Any

import msgspec

from ..commands import Create, PublishSnapshot, Trim
from ..stream.stream import Stream

_encode = msgspec.json.Encoder().encode


def creation(command: Create, stream: Stream) -> bytes | None:
    """How a stream began: its lifetime, its attributes, and where a fork branches off its source."""
    fields: dict[str, Any] = {}
    if command.fork is not None:
        fields["source"] = command.fork.source
        fields["offset"] = stream.fork_offset
    if stream.ttl_seconds is not None:
        fields["ttl_seconds"] = stream.ttl_seconds
    if stream.expires_at is not None:
        fields["expires_at"] = stream.expires_at
    if stream.attributes is not None:
        fields["attributes"] = msgspec.Raw(stream.attributes)
    return _encode(fields) if fields else None


def attributes(text: bytes) -> bytes:
    """The new attributes of a stream."""
    return _encode({"attributes": msgspec.Raw(text)})


def snapshot(command: PublishSnapshot) -> bytes:
    """A new snapshot, and where its bytes are."""
    return _encode(
        {
            "offset": command.offset,
            "content_type": command.content_type,
            "size": command.size,
            "digest": command.digest,
            "blob": command.blob,
        }
    )


def trim(command: Trim | PublishSnapshot) -> bytes:
    """The earliest offset of a stream from now on."""
    return _encode({"earliest": command.offset})
