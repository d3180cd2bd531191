"""Exactly-once delivery: each request has a number, and is sent under it until its fate is known.

A number is given to other content only when it is certain that the server has not taken it.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal
from uuid import uuid4

from .appends import json_array
from .errors import Fenced, OutcomeUnknown, Refused, Retryable, StreamError
from .framing import frames
from .numbers import check_count
from .results import Appended, is_json
from .retry import Attempts
from .steps import Answer, Request, Steps, call, sleep
from .target import StreamTarget, content_type_of

Framing = Literal["length-prefixed"]

CLOSING = {"stream-closed": "true"}

EPOCH_MAX = 2**53 - 1
SAME_ANSWER_ALWAYS = {400, 413}
"""Statuses that depend on the request alone: an earlier try was refused too."""
NO_ROUTE = {404, 405, 501}
MISSING = {"stream_not_found", "bucket_not_found"}
"""Ursula's own 404: the route is there, and the stream is not."""


class Numbering:
    """Which producer this is, and the number of its next request."""

    def __init__(self, producer_id: str | None, epoch: int | None, auto_claim: bool) -> None:
        if producer_id == "":
            raise ValueError("producer_id must not be empty; without one the producer gets a random name")
        if epoch is not None:
            check_count("epoch", epoch, 0, EPOCH_MAX)
        self.producer_id = producer_id or uuid4().hex
        # Whoever starts later has the greater epoch, without having to remember the last one.
        self.epoch = (time.time_ns() // 1000 if producer_id else 0) if epoch is None else epoch
        self.seq = 0
        self._auto_claim = auto_claim

    @property
    def headers(self) -> dict[str, str]:
        """What identifies the next request."""
        return {
            "producer-id": self.producer_id,
            "producer-epoch": str(self.epoch),
            "producer-seq": str(self.seq),
        }

    @property
    def may_claim(self) -> bool:
        """Whether it may take a higher epoch: only before it wrote anything, or two would fight forever."""
        return self._auto_claim and self.seq == 0

    def claim(self, current: int) -> None:
        """Take the producer over from whoever has this epoch."""
        self.epoch, self.seq = current + 1, 0


@dataclass(frozen=True, slots=True)
class Parcel:
    """The content of one request. `otherwise` is for a server that has no such route."""

    path: str
    headers: Mapping[str, str]
    body: bytes
    otherwise: "Parcel | None" = None

    @property
    def has_content(self) -> bool:
        """Whether it appends something, and does not only close."""
        return bool(self.body)


def pack(
    target: StreamTarget, payloads: Sequence[bytes], framing: Framing | None, close: bool = False
) -> Steps[Parcel]:
    """Messages as one request: a JSON array, framed bytes, a batch, or simply one after the other."""
    content_type = yield from content_type_of(target)
    headers = {"content-type": content_type} | (CLOSING if close else {})
    if is_json(content_type):
        return Parcel(target.path, headers, json_array(payloads))
    if framing is not None:
        return Parcel(target.path, headers, frames(payloads))
    joined = Parcel(target.path, headers, b"".join(payloads))
    if len(payloads) == 1 or not target.takes_batches or not target.address.has_parts:
        return joined
    return Parcel(target.address.part("append-batch"), headers, frames(payloads), joined)


def ends_producer(failure: Exception) -> bool:
    """Whether a producer must not go on: it was fenced off, or does not know which number is next."""
    if not isinstance(failure, Refused | Retryable):
        return True
    return isinstance(failure, Fenced) or "expected_seq" in failure.data


def deliver(
    target: StreamTarget, numbering: Numbering, payloads: Sequence[bytes], framing: Framing | None
) -> Steps[Appended]:
    """Append messages exactly once, in one request."""
    parcel = yield from pack(target, payloads, framing)
    return (yield from send(target, numbering, parcel))


def deliver_close(
    target: StreamTarget, numbering: Numbering, payload: bytes | None, framing: Framing | None
) -> Steps[Appended]:
    """Close the stream as the last request of this producer, which may carry a last message."""
    if payload is None:
        parcel = Parcel(target.path, CLOSING, b"")
    else:
        parcel = yield from pack(target, [payload], framing, close=True)
    return (yield from send(target, numbering, parcel))


def send(target: StreamTarget, numbering: Numbering, parcel: Parcel) -> Steps[Appended]:
    """Send a parcel until it is known to be stored, or known never to be.

    Raises Fenced if another instance took over, Refused or Retryable if it is certainly not stored, and
    OutcomeUnknown if that could not be found out in time.
    """
    attempts = Attempts(target.patience)
    unknown: OutcomeUnknown | None = None
    while True:
        try:
            answer = yield from call(_request(numbering, parcel))
        except (Retryable, OutcomeUnknown) as failure:
            unknown = failure if isinstance(failure, OutcomeUnknown) else unknown
            delay = _delay(attempts, failure, unknown)
        except Fenced as fenced:
            if unknown is not None or not numbering.may_claim:
                fenced.maybe_written = unknown is not None
                raise
            numbering.claim(_current_epoch(fenced, numbering))
            continue
        except Refused as refusal:
            if parcel.otherwise is not None and _lacks_route(refusal):
                target.takes_batches = False
                parcel = parcel.otherwise
                continue
            if unknown is None or refusal.status in SAME_ANSWER_ALWAYS:
                raise
            # The stream may have been closed or deleted after an earlier try was stored.
            raise _still_unknown(refusal) from refusal
        else:
            is_duplicate = answer.status == 204
            if is_duplicate and unknown is None and parcel.has_content:
                _taken_by_another(numbering, answer)
                continue
            numbering.seq += 1
            return Appended.of(answer, is_duplicate and parcel.has_content)
        yield from sleep(delay)


def _lacks_route(refusal: Refused) -> bool:
    return refusal.status in NO_ROUTE and refusal.code not in MISSING


def _request(numbering: Numbering, parcel: Parcel) -> Request:
    headers = {**parcel.headers, **numbering.headers}
    return Request("POST", parcel.path, {}, headers, parcel.body)


def _delay(attempts: Attempts, failure: StreamError, unknown: OutcomeUnknown | None) -> float:
    try:
        return attempts.delay_after(failure)
    except Retryable as given_up:
        if unknown is None:
            raise
        raise _still_unknown(given_up) from unknown


def _still_unknown(last: StreamError) -> OutcomeUnknown:
    message = f"an earlier try may have been stored, and the last one was refused: {last.message}"
    return OutcomeUnknown(last.code, message, last.status, last.data)


def _current_epoch(fenced: Fenced, numbering: Numbering) -> int:
    return int(fenced.data.get("current_epoch", numbering.epoch))


def _taken_by_another(numbering: Numbering, answer: Answer) -> None:
    """The number was used before we used it: another instance has our epoch."""
    if not numbering.may_claim:
        message = f"another instance of producer {numbering.producer_id} writes in epoch {numbering.epoch}"
        raise Fenced("producer_epoch_taken", message, answer.status)
    numbering.claim(numbering.epoch)
