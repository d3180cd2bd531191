"""An HTTP client for the requests that Spark makes: plans, feeds, bulk writes.

Executors use it too, and they have no HTTP library, so it uses only the standard library.
"""

import json
import logging
import random
import time
from http import HTTPStatus
from http.client import HTTPException, HTTPMessage
from typing import IO, Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode
from urllib.request import HTTPRedirectHandler, Request, build_opener

from .options import OFFSET_DIGITS

ARROW = "application/vnd.apache.arrow.stream"
REQUEST_SECONDS = 60.0
PAGE_BYTES = 16 << 20

POSITION_TRIMMED = "position_trimmed"
POSITION_REWOUND = "position_rewound"
OFFSET_BEYOND_TAIL = "offset_beyond_tail"

_PAUSE_SECONDS = 0.1
_PAUSE_SECONDS_MAX = 5.0
_RETRYABLE = (307, 429, 500, 502, 503, 504)
"""307 is among them, since nodes may send a write in a circle while their leader changes."""

logger = logging.getLogger(__name__)


class RequestRefused(Exception):
    """The request is wrong, and a retry would not help. `position` is where to continue, if known."""

    def __init__(self, code: str, message: str, position: int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.position = position


class ServerRefused(RequestRefused):
    """The server answered with an error."""

    def __init__(self, status: int, code: str, message: str, position: int | None = None) -> None:
        super().__init__(code, f"the server refused: {message} ({code}, HTTP {status})", position)
        self.status = status


class ServerUnreachable(Exception):
    """The server did not answer before the retries ended."""


class _Redirects(HTTPRedirectHandler):
    """Follows a redirected write too, with its body: only the leader of a cluster may accept writes."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        """The request to make instead."""
        if code != HTTPStatus.TEMPORARY_REDIRECT:
            return super().redirect_request(req, fp, code, msg, headers, newurl)
        return Request(newurl, req.data, req.headers, req.origin_req_host, True, req.get_method())


_open = build_opener(_Redirects).open


class ServerClient:
    """A server at an address. A request that fails is retried for `retry_seconds`.

    `auth` is the Authorization header. It is not sent to the target of a redirect.
    """

    def __init__(self, endpoint: str, retry_seconds: float, auth: str | None = None) -> None:
        self._endpoint = endpoint
        self._retry_seconds = retry_seconds
        self._auth = auth

    def plan(self, bucket: str, after: int | None) -> dict[str, Any]:
        """The plan of a bucket: where its history is."""
        query = {"bucket": bucket} | ({} if after is None else {"after": _digits(after)})
        body, _ = self._get(f"/cluster/plan?{urlencode(query)}", {})
        plan: dict[str, Any] = json.loads(body)
        return plan

    def feed(self, bucket: str, after: int, until: int) -> tuple[bytes, int]:
        """Some rows of a bucket after a position as an Arrow stream, and the position that they reach."""
        query = urlencode({"offset": _digits(after), "until": _digits(until), "max_bytes": PAGE_BYTES})
        body, headers = self._get(f"/{quote(bucket, safe='')}?{query}", {"Accept": ARROW})
        return body, int(headers["stream-next-offset"])

    def store_root(self) -> str:
        """The root of the store, as the server reaches it."""
        body, _ = self._get("/cluster/buckets?limit=1", {})
        buckets = json.loads(body)["buckets"]
        if not buckets:
            raise ServerRefused(HTTPStatus.NOT_FOUND, "bucket_not_found", "there is no bucket yet")
        root: str = self.plan(buckets[0]["bucket_id"], None)["root"]
        return root

    def flush(self) -> None:
        """Flush everything that is only in memory."""
        self._ask("/cluster/flush", {}, b"")

    def replace_segments(self, group: int, old: list[str], new: str) -> None:
        """Replace segments with the one that was merged from them."""
        body = json.dumps({"group": group, "old": old, "new": [new]}).encode()
        self._ask("/cluster/replace-segments", {"Content-Type": "application/json"}, body)

    def publish_snapshot(
        self, stream: str, offset: int, body: bytes, content_type: str, *, trim: bool
    ) -> None:
        """Publish a snapshot of a stream, given by its path, at an offset."""
        path = f"{stream}/snapshot/{_digits(offset)}?trim={'true' if trim else 'false'}"
        self._answer(path, {"Content-Type": content_type}, body, "PUT")

    def stage(self, bucket: str, body: bytes) -> str:
        """Stage rows (an Arrow stream) for a bulk write; returns the name of the staged object."""
        answer, _ = self._ask(
            f"/cluster/staging?{urlencode({'bucket': bucket})}", {"Content-Type": ARROW}, body
        )
        name: str = json.loads(answer)["object"]
        return name

    def ingest(self, request: dict[str, Any]) -> dict[str, Any]:
        """Append staged rows, waiting as long as that takes; returns the server's report."""
        body = json.dumps(request).encode()
        while True:
            answer, _, status = self._answer("/cluster/ingest", {"Content-Type": "application/json"}, body)
            if status != HTTPStatus.ACCEPTED:
                report: dict[str, Any] = json.loads(answer)
                return report

    def _get(self, path: str, headers: dict[str, str]) -> tuple[bytes, dict[str, str]]:
        return self._ask(path, headers, None)

    def _ask(self, path: str, headers: dict[str, str], body: bytes | None) -> tuple[bytes, dict[str, str]]:
        answer, found, _ = self._answer(path, headers, body)
        return answer, found

    def _answer(
        self, path: str, headers: dict[str, str], body: bytes | None, method: str | None = None
    ) -> tuple[bytes, dict[str, str], int]:
        give_up_at, pause = time.monotonic() + self._retry_seconds, _PAUSE_SECONDS
        while True:
            try:
                request = Request(self._endpoint + path, body, headers, method=method)
                if self._auth is not None:
                    request.add_unredirected_header("Authorization", self._auth)
                with _open(request, timeout=REQUEST_SECONDS) as answer:
                    found = {name.lower(): text for name, text in answer.headers.items()}
                    return answer.read(), found, answer.status
            except HTTPError as error:
                refused = _refusal(error)
                if error.code not in _RETRYABLE or time.monotonic() > give_up_at:
                    raise refused from None
            except (URLError, HTTPException, OSError) as error:
                why = getattr(error, "reason", error)
                if time.monotonic() > give_up_at:
                    message = f"no answer from {self._endpoint} for {self._retry_seconds:g} s: {why}"
                    raise ServerUnreachable(f"{message}. Is it running, and is that its address?") from None
                if pause == _PAUSE_SECONDS:
                    again = "no answer from %s: %s; retrying for %g s"
                    logger.warning(again, self._endpoint, why, self._retry_seconds)
            time.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, _PAUSE_SECONDS_MAX)


def _refusal(error: HTTPError) -> ServerRefused:
    try:
        problem = json.loads(error.read())["error"]
        position = None if "position" not in problem else int(problem["position"])
        return ServerRefused(error.code, problem["code"], problem["message"], position)
    except (ValueError, LookupError, TypeError, OSError):
        return ServerRefused(error.code, "unknown", error.reason or "no reason given")


def _digits(position: int) -> str:
    return str(position).zfill(OFFSET_DIGITS)
