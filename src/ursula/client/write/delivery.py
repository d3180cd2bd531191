"""Exactly-once delivery: each request has a sequence number, and keeps it until its outcome is known.

A number is reused for other content only if the server has certainly not accepted it.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal
from uuid import uuid4

from ..checks import check_count
from ..connection.retry import Attempts
from ..connection.steps import Answer, Request, Steps, call, sleep
from ..errors import Fenced, OutcomeUnknown, Refused, Retryable, StreamError
from ..formats.frames import frames
from ..results import Appended, is_json
from ..target import StreamTarget, content_type_of
from .appends import json_array

Framing = Literal["length-prefixed"]

CLOSING = {"stream-closed": "true"}

EPOCH_MAX = 2**53 - 1
SAME_ANSWER_ALWAYS = {400, 413}
"""Statuses that depend on the request alone, so an earlier attempt was refused too."""
NO_ROUTE = {404, 405, 501}
MISSING = {"stream_not_found", "bucket_not_found"}
"""The codes of a 404 that means that the route exists but the stream does not."""


class ProducerIdentity:
    """The id and epoch of a producer, and the sequence number of its next request."""

    def __init__(self, producer_id: str | None, epoch: int | None, auto_claim: bool) -> None:
        if producer_id == "":
            raise ValueError("producer_id must not be empty; omit it to get a random id")
        if epoch is not None:
            check_count("epoch", epoch, 0, EPOCH_MAX)
        self.producer_id = producer_id or uuid4().hex
        # The time: an instance that starts later has a greater epoch, without having to remember the last.
        self.epoch = (time.time_ns() // 1000 if producer_id else 0) if epoch is None else epoch
        self.seq = 0
        self._auto_claim = auto_claim

    @property
    def headers(self) -> dict[str, str]:
        """The headers that identify the next request."""
        return {
            "producer-id": self.producer_id,
            "producer-epoch": str(self.epoch),
            "producer-seq": str(self.seq),
        }

    @property
    def may_claim(self) -> bool:
        """Whether it may claim a higher epoch: only before its first write, or two would fight forever."""
        return self._auto_claim and self.seq == 0

    def claim(self, current: int) -> None:
        """Take over from the instance that has this epoch."""
        self.epoch, self.seq = current + 1, 0


@dataclass(frozen=True, slots=True)
class ProducerRequest:
    """The content of one request. `fallback` is for a server that lacks its route."""

    path: str
    headers: Mapping[str, str]
    body: bytes
    fallback: "ProducerRequest | None" = None

    @property
    def has_content(self) -> bool:
        """Whether it appends something, and does not just close the stream."""
        return bool(self.body)


def pack(
    target: StreamTarget, payloads: Sequence[bytes], framing: Framing | None, close: bool = False
) -> Steps[ProducerRequest]:
    """Messages as one request: a JSON array, framed bytes, a batch, or simply concatenated."""
    content_type = yield from content_type_of(target)
    headers = {"content-type": content_type} | (CLOSING if close else {})
    if is_json(content_type):
        return ProducerRequest(target.path, headers, json_array(payloads))
    if framing is not None:
        return ProducerRequest(target.path, headers, frames(payloads))
    joined = ProducerRequest(target.path, headers, b"".join(payloads))
    if len(payloads) == 1 or not target.takes_batches or not target.address.has_parts:
        return joined
    return ProducerRequest(target.address.part("append-batch"), headers, frames(payloads), joined)


def ends_producer(failure: Exception) -> bool:
    """Whether a producer must stop: it was fenced, or it no longer knows its next sequence number."""
    if not isinstance(failure, Refused | Retryable):
        return True
    return isinstance(failure, Fenced) or "expected_seq" in failure.data


def deliver(
    target: StreamTarget, identity: ProducerIdentity, payloads: Sequence[bytes], framing: Framing | None
) -> Steps[Appended]:
    """Append messages exactly once, in one request."""
    request = yield from pack(target, payloads, framing)
    return (yield from send(target, identity, request))


def deliver_close(
    target: StreamTarget, identity: ProducerIdentity, payload: bytes | None, framing: Framing | None
) -> Steps[Appended]:
    """Close the stream with the last request of this producer, which may carry a last message."""
    if payload is None:
        request = ProducerRequest(target.path, CLOSING, b"")
    else:
        request = yield from pack(target, [payload], framing, close=True)
    return (yield from send(target, identity, request))


def send(target: StreamTarget, identity: ProducerIdentity, request: ProducerRequest) -> Steps[Appended]:
    """Send a request until it is known to be stored, or known never to be stored.

    Raises Fenced if another instance has taken over, Refused or Retryable if the request was certainly not
    stored, and OutcomeUnknown if this could not be determined in time.
    """
    attempts = Attempts(target.patience)
    unknown: OutcomeUnknown | None = None
    while True:
        try:
            answer = yield from call(_http_request(identity, request))
        except (Retryable, OutcomeUnknown) as failure:
            unknown = failure if isinstance(failure, OutcomeUnknown) else unknown
            delay = _delay(attempts, failure, unknown)
        except Fenced as fenced:
            if unknown is not None or not identity.may_claim:
                fenced.maybe_written = unknown is not None
                raise
            identity.claim(_current_epoch(fenced, identity))
            continue
        except Refused as refusal:
            if request.fallback is not None and _lacks_route(refusal):
                target.takes_batches = False
                request = request.fallback
                continue
            if unknown is None or refusal.status in SAME_ANSWER_ALWAYS:
                raise
            # The stream may have been closed or deleted after an earlier attempt was stored.
            raise _still_unknown(refusal) from refusal
        else:
            is_duplicate = answer.status == 204
            if is_duplicate and unknown is None and request.has_content:
                _claim_from_twin(identity, answer)
                continue
            identity.seq += 1
            return Appended.of(answer, is_duplicate and request.has_content)
        yield from sleep(delay)


def _lacks_route(refusal: Refused) -> bool:
    return refusal.status in NO_ROUTE and refusal.code not in MISSING


def _http_request(identity: ProducerIdentity, request: ProducerRequest) -> Request:
    headers = {**request.headers, **identity.headers}
    return Request("POST", request.path, {}, headers, request.body)


def _delay(attempts: Attempts, failure: StreamError, unknown: OutcomeUnknown | None) -> float:
    try:
        return attempts.delay_after(failure)
    except Retryable as given_up:
        if unknown is None:
            raise
        raise _still_unknown(given_up) from unknown


def _still_unknown(last: StreamError) -> OutcomeUnknown:
    message = f"an earlier attempt may have been stored, and the last one was refused: {last.message}"
    return OutcomeUnknown(last.code, message, last.status, last.data)


def _current_epoch(fenced: Fenced, identity: ProducerIdentity) -> int:
    return int(fenced.data.get("current_epoch", identity.epoch))


def _claim_from_twin(identity: ProducerIdentity, answer: Answer) -> None:
    """The sequence number was already used: another instance has the same epoch."""
    if not identity.may_claim:
        message = f"another instance of producer {identity.producer_id} is writing in epoch {identity.epoch}"
        raise Fenced("producer_epoch_taken", message, answer.status)
    identity.claim(identity.epoch)
