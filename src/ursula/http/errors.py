"""Every error that the server responds with: its code, its status, and the one JSON shape of them all.

`{"error": {"code": ..., "message": ..., more data}}`, whatever the status. The codes are part of the
interface.
"""

from typing import Any, Literal

import msgspec

from ..model.outcomes import ErrorCode

HttpErrorCode = Literal[
    "attributes_invalid",
    "body_incomplete",
    "body_timeout",
    "content_encoding_unsupported",
    "content_type_missing",
    "fork_across_buckets",
    "head_timeout",
    "head_too_large",
    "header_invalid",
    "ingest_refused",
    "invalid_frames",
    "invalid_rows",
    "invalid_segment",
    "invalid_ttl",
    "malformed_request",
    "method_not_allowed",
    "method_unknown",
    "not_available",
    "not_leader",
    "object_damaged",
    "object_not_found",
    "outcome_unknown",
    "position_rewound",
    "range_not_satisfiable",
    "route_not_found",
    "segments_replaced",
    "snapshot_not_found",
    "store_unavailable",
    "too_many_connections",
    "transfer_encoding_unsupported",
]
"""The codes of problems that arise before or after a group decides on a request."""

AnyErrorCode = ErrorCode | HttpErrorCode

STATUS: dict[AnyErrorCode, int] = {
    "not_leader": 307,
    "invalid_bucket_id": 400,
    "invalid_stream_id": 400,
    "malformed_request": 400,
    "header_invalid": 400,
    "invalid_parameter": 400,
    "invalid_offset": 400,
    "offset_beyond_tail": 400,
    "invalid_ttl": 400,
    "invalid_json": 400,
    "empty_body": 400,
    "body_incomplete": 400,
    "content_type_missing": 400,
    "producer_headers_invalid": 400,
    "fork_across_buckets": 400,
    "attributes_invalid": 400,
    "invalid_frames": 400,
    "invalid_rows": 400,
    "invalid_segment": 400,
    "record_beyond_next": 400,
    "producer_epoch_stale": 403,
    "ingest_outdated": 403,
    "route_not_found": 404,
    "bucket_not_found": 404,
    "stream_not_found": 404,
    "snapshot_not_found": 404,
    "object_not_found": 404,
    "method_not_allowed": 405,
    "body_timeout": 408,
    "head_timeout": 408,
    "bucket_exists": 409,
    "bucket_not_empty": 409,
    "stream_exists": 409,
    "stream_closed": 409,
    "content_type_mismatch": 409,
    "producer_seq_conflict": 409,
    "stream_seq_conflict": 409,
    "snapshot_conflict": 409,
    "ingest_refused": 409,
    "segments_replaced": 409,
    "not_available": 409,
    "stream_gone": 410,
    "offset_trimmed": 410,
    "record_trimmed": 410,
    "position_trimmed": 410,
    "position_rewound": 410,
    "precondition_failed": 412,
    "incarnation_mismatch": 412,
    "body_too_large": 413,
    "content_encoding_unsupported": 415,
    "range_not_satisfiable": 416,
    "head_too_large": 431,
    "internal_error": 500,
    "object_damaged": 500,
    "transfer_encoding_unsupported": 501,
    "method_unknown": 501,
    "too_many_connections": 503,
    "write_backpressure": 503,
    "unavailable": 503,
    "store_unavailable": 503,
    "outcome_unknown": 503,
}

RETRY_AFTER_SECONDS: dict[AnyErrorCode, int] = {
    "write_backpressure": 1,
    "unavailable": 1,
    "store_unavailable": 1,
    "too_many_connections": 1,
}
"""Errors that say when to retry, because nothing was written. So an unknown outcome is not among them."""


class Problem(Exception):
    """A request that cannot be served: a code from the table, a message for people, data for programs."""

    def __init__(
        self, code: AnyErrorCode, message: str, headers: list[tuple[str, str]] | None = None, **data: Any
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.headers = headers or []
        self.data = data

    @property
    def status(self) -> int:
        """The HTTP status of the code."""
        return STATUS[self.code]

    def answer_headers(self) -> list[tuple[str, str]]:
        """The headers of the response."""
        headers = [("content-type", "application/json"), *self.headers]
        retry_after = RETRY_AFTER_SECONDS.get(self.code)
        if retry_after is not None:
            headers.append(("retry-after", str(retry_after)))
        return headers

    def body(self) -> bytes:
        """The JSON body of the response."""
        return msgspec.json.encode({"error": {"code": self.code, "message": self.message, **self.data}})
