"""Create, close and delete a stream."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from urllib.parse import quote

from ..connection.retry import perform
from ..connection.steps import Request, Steps, without_none
from ..results import Appended, Created
from ..target import StreamTarget


def create(
    target: StreamTarget,
    content_type: str | None = None,
    *,
    body: bytes | str = b"",
    ttl_seconds: int | None = None,
    expires_at: datetime | str | None = None,
    attributes: Mapping[str, Any] | None = None,
    closed: bool = False,
    forked_from: str | None = None,
    fork_offset: str | None = None,
    fork_sub_offset: int | None = None,
    if_match: str | None = None,
) -> Steps[Created]:
    """Create the stream, unless it already exists exactly as requested; if it differs, this is refused.

    `forked_from` is the path of a source stream in the same bucket, such as `/bucket/stream`.
    """
    moment = expires_at.isoformat() if isinstance(expires_at, datetime) else expires_at
    headers = {
        "content-type": content_type,
        "stream-ttl": None if ttl_seconds is None else str(ttl_seconds),
        "stream-expires-at": moment,
        "stream-attrs": None if attributes is None else json.dumps(attributes),
        "stream-closed": "true" if closed else None,
        "stream-forked-from": None if forked_from is None else quote(forked_from, safe="/%"),
        "stream-fork-offset": fork_offset,
        "stream-fork-sub-offset": None if fork_sub_offset is None else str(fork_sub_offset),
        "if-match": if_match,
    }
    content = body.encode() if isinstance(body, str) else body
    # A second PUT finds the stream that the first one created, unless it requires an older state.
    path, is_repeatable = target.address.path, if_match is None
    request = Request("PUT", path, {}, without_none(headers), content, repeatable=is_repeatable)
    answer = yield from perform(request, target.patience)
    target.content_type = answer.headers.get("content-type", content_type)
    return Created.of(answer)


def close(target: StreamTarget, *, incarnation: str | None = None) -> Steps[Appended]:
    """Close the stream; closing it again changes nothing."""
    headers = {"stream-closed": "true"}
    if incarnation is not None:
        headers["stream-incarnation"] = incarnation
    request = Request("POST", target.address.path, {}, headers, repeatable=True)
    return Appended.of((yield from perform(request, target.patience)))


def delete(target: StreamTarget, *, incarnation: str | None = None) -> Steps[None]:
    """Delete the stream; with an incarnation, only if it still is that one."""
    headers = {} if incarnation is None else {"stream-incarnation": incarnation}
    target.content_type = None
    yield from perform(Request("DELETE", target.address.path, {}, headers), target.patience)
