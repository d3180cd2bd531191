"""What an operator asks of a server: to move data out of memory and the log, and to bring a stream back."""

import json
from dataclasses import dataclass

from .json_text import decode
from .retry import Patience, perform
from .steps import Request, Steps

OFFSET_DIGITS = 20
FLUSH_SECONDS = 300.0
"""How long a flush may take: there may be much in memory, and the store may be slow."""


@dataclass(frozen=True, slots=True)
class FlushedGroup:
    """A group of the server, and the position up to which it is in the store."""

    group: int
    position: int


@dataclass(frozen=True, slots=True)
class Undeleted:
    """A stream that is back."""

    bucket_id: str
    stream_id: str
    incarnation: str
    tail_offset: str
    closed: bool


def flush(patience: Patience) -> Steps[list[FlushedGroup]]:
    """Have everything that is in memory stored, and wait until it is."""
    request = Request("POST", "/cluster/flush", repeatable=True, wait_seconds=FLUSH_SECONDS)
    fields = decode((yield from perform(request, patience)).body)
    return [FlushedGroup(found["group"], found["position"]) for found in fields["groups"]]


def trigger_snapshot(patience: Patience) -> Steps[None]:
    """Have the whole state stored, soon."""
    yield from perform(Request("POST", "/cluster/trigger-snapshot", repeatable=True), patience)


def purge_log(patience: Patience) -> Steps[int]:
    """Have the log forget what is in the store; how far it did."""
    request = Request("POST", "/cluster/purge-log", repeatable=True)
    fields = decode((yield from perform(request, patience)).body)
    return int(fields["purged_index"])


def undelete(
    patience: Patience, bucket: str, stream: str, incarnation: str | None = None
) -> Steps[Undeleted]:
    """Bring back the last stream of that name, or the one with that incarnation, as it was."""
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
        tail_offset=str(fields["tail_offset"]).zfill(OFFSET_DIGITS),
        closed=fields["closed"],
    )
