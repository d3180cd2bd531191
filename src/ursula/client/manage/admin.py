"""Requests for operators: move data from memory and the log into the store, and undelete a stream."""

import json
from dataclasses import dataclass

from ..connection.retry import Patience, perform
from ..connection.steps import Request, Steps
from ..formats.json_text import decode
from ..results import padded_offset

FLUSH_SECONDS = 300.0
"""How long a flush may take: there may be a lot in memory, and the store may be slow."""


@dataclass(frozen=True, slots=True)
class FlushedGroup:
    """A group of the server, and the log position up to which it is in the store."""

    group: int
    position: int


@dataclass(frozen=True, slots=True)
class Undeleted:
    """A stream that was undeleted."""

    bucket_id: str
    stream_id: str
    incarnation: str
    tail_offset: str
    closed: bool


def flush(patience: Patience) -> Steps[list[FlushedGroup]]:
    """Flush everything in memory to the store, and wait until that is done."""
    request = Request("POST", "/cluster/flush", repeatable=True, wait_seconds=FLUSH_SECONDS)
    fields = decode((yield from perform(request, patience)).body)
    return [FlushedGroup(found["group"], found["position"]) for found in fields["groups"]]


def trigger_snapshot(patience: Patience) -> Steps[None]:
    """Ask the server to store its whole state soon."""
    yield from perform(Request("POST", "/cluster/trigger-snapshot", repeatable=True), patience)


def purge_log(patience: Patience) -> Steps[int]:
    """Trim the part of the log that is in the store. Returns the position up to which it was trimmed."""
    request = Request("POST", "/cluster/purge-log", repeatable=True)
    fields = decode((yield from perform(request, patience)).body)
    return int(fields["purged_index"])


def undelete(
    patience: Patience, bucket: str, stream: str, incarnation: str | None = None
) -> Steps[Undeleted]:
    """Undelete the last stream of that name, or the one with that incarnation."""
    wanted = {"bucket": bucket, "stream": stream}
    if incarnation is not None:
        wanted["incarnation"] = incarnation
    headers = {"content-type": "application/json"}
    request = Request("POST", "/cluster/undelete", {}, headers, json.dumps(wanted).encode())
    fields = decode((yield from perform(request, patience)).body)
    return Undeleted(
        bucket_id=fields["bucket_id"],
        stream_id=fields["stream_id"],
        incarnation=fields["incarnation"],
        tail_offset=padded_offset(fields["tail_offset"]),
        closed=fields["closed"],
    )
