"""The headers that every response has: security, and what browsers may see across origins."""

from collections.abc import Sequence

from .headers import OURS
from .rsgi import HeaderList

METHODS = "GET, HEAD, PUT, POST, DELETE, OPTIONS"
EXPOSED = ", ".join(
    (
        "Accept-Ranges",
        "Content-Range",
        "ETag",
        "Location",
        "Producer-Epoch",
        "Producer-Expected-Seq",
        "Producer-Received-Seq",
        "Producer-Seq",
        "Retry-After",
        "Stream-Closed",
        "Stream-Cursor",
        "Stream-Earliest-Offset",
        "Stream-Expires-At",
        "Stream-Extensions",
        "Stream-Incarnation",
        "Stream-Next-Offset",
        "Stream-Record-First",
        "Stream-Record-Next",
        "Stream-Record-Start",
        "Stream-SSE-Data-Encoding",
        "Stream-Snapshot-Digest",
        "Stream-Snapshot-Offset",
        "Stream-TTL",
        "Stream-Up-To-Date",
    )
)
ALLOWED = ", ".join(sorted({*OURS, "authorization", "cache-control"}))
PREFLIGHT_SECONDS = 86_400

_SECURITY: HeaderList = [
    ("x-content-type-options", "nosniff"),
    ("cross-origin-resource-policy", "cross-origin"),
]


class Cors:
    """Which origins may use the server from a browser."""

    def __init__(self, origins: Sequence[str]) -> None:
        self._origins = frozenset(origins)
        self.open: HeaderList | None = _allowing("*") if "*" in origins else None

    def headers(self, origin: str | None) -> HeaderList:
        """What goes on every response to this origin; `open`, where that is the same for everyone."""
        if self.open is not None:
            return self.open
        if origin in self._origins and origin is not None:
            return [*_allowing(origin), ("vary", "Origin")]
        return [*_SECURITY, ("vary", "Origin")]

    def preflight(self, origin: str | None) -> HeaderList:
        """The answer to a browser that asks first."""
        return [
            *self.headers(origin),
            ("access-control-allow-methods", METHODS),
            ("access-control-allow-headers", ALLOWED),
            ("access-control-max-age", str(PREFLIGHT_SECONDS)),
        ]


def _allowing(origin: str) -> HeaderList:
    return [
        *_SECURITY,
        ("access-control-allow-origin", origin),
        ("access-control-expose-headers", EXPOSED),
    ]
