"""What Spark asks of a server: plans and feeds. The standard library only: it runs on executors too."""

import json
import random
import time
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode
from urllib.request import Request, urlopen

from .options import OFFSET_DIGITS

ARROW = "application/vnd.apache.arrow.stream"
REQUEST_SECONDS = 60.0
PAGE_BYTES = 16 << 20

POSITION_TRIMMED = "position_trimmed"
POSITION_REWOUND = "position_rewound"
OFFSET_BEYOND_TAIL = "offset_beyond_tail"

_PAUSE_SECONDS_MAX = 5.0
_WORTH_ANOTHER_TRY = (429, 500, 502, 503, 504)


class Refused(Exception):
    """It cannot be read like this, also not later. `position`: from where on it can, if that is told."""

    def __init__(self, code: str, message: str, position: int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.position = position


class ServerRefused(Refused):
    """The server answered with an error."""

    def __init__(self, status: int, code: str, message: str, position: int | None = None) -> None:
        super().__init__(code, f"the server refused: {message} ({code}, HTTP {status})", position)
        self.status = status


class ServerUnreachable(Exception):
    """There was no answer for as long as was waited for one."""


class ServerApi:
    """A server by its address. A request that fails is repeated for `retry_seconds`."""

    def __init__(self, endpoint: str, retry_seconds: float) -> None:
        self._endpoint = endpoint
        self._retry_seconds = retry_seconds

    def plan(self, bucket: str, after: int | None) -> dict[str, Any]:
        """Where the history of a bucket lies."""
        query = {"bucket": bucket} | ({} if after is None else {"after": _digits(after)})
        body, _ = self._get(f"/cluster/plan?{urlencode(query)}", {})
        plan: dict[str, Any] = json.loads(body)
        return plan

    def feed(self, bucket: str, after: int, until: int) -> tuple[bytes, int]:
        """Some rows of a bucket after a position as an Arrow stream, and the position that they reach."""
        query = urlencode({"offset": _digits(after), "until": _digits(until), "max_bytes": PAGE_BYTES})
        body, headers = self._get(f"/{quote(bucket, safe='')}?{query}", {"Accept": ARROW})
        return body, int(headers["stream-next-offset"])

    def _get(self, path: str, headers: dict[str, str]) -> tuple[bytes, dict[str, str]]:
        give_up_at, pause = time.monotonic() + self._retry_seconds, 0.1
        while True:
            try:
                request = Request(self._endpoint + path, headers=headers)
                with urlopen(request, timeout=REQUEST_SECONDS) as answer:
                    found = {name.lower(): text for name, text in answer.headers.items()}
                    return answer.read(), found
            except HTTPError as error:
                refused = _refusal(error)
                if error.code not in _WORTH_ANOTHER_TRY or time.monotonic() > give_up_at:
                    raise refused from None
            except (URLError, HTTPException, OSError) as error:
                if time.monotonic() > give_up_at:
                    why = getattr(error, "reason", error)
                    message = f"no answer from {self._endpoint} for {self._retry_seconds:g} s: {why}"
                    raise ServerUnreachable(message) from None
            time.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, _PAUSE_SECONDS_MAX)


def _refusal(error: HTTPError) -> ServerRefused:
    try:
        told = json.loads(error.read())["error"]
        position = None if "position" not in told else int(told["position"])
        return ServerRefused(error.code, told["code"], told["message"], position)
    except (ValueError, LookupError, TypeError, OSError):
        return ServerRefused(error.code, "unknown", error.reason or "it did not say why")


def _digits(position: int) -> str:
    return str(position).zfill(OFFSET_DIGITS)
