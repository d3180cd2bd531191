"""The headers of every response: security, and what pages from other origins may see."""

from collections.abc import Sequence

from ..wire.headers import HeaderList, render
from .headers import OURS

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
        "Stream-Attrs-Ignored",
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
PREFLIGHT_LINES = render(
    [
        ("access-control-allow-methods", METHODS),
        ("access-control-allow-headers", ALLOWED),
        ("access-control-max-age", str(PREFLIGHT_SECONDS)),
    ]
)
"""The headers of a response to a preflight request, in addition to those of every response."""

_SECURITY: HeaderList = [
    ("x-content-type-options", "nosniff"),
    ("cross-origin-resource-policy", "cross-origin"),
]


class CorsPolicy:
    """Which origins may use the server from a browser."""

    def __init__(self, origins: Sequence[str]) -> None:
        self._origins = frozenset(origins) - {"*"}
        self.open = render(_allowing("*")) if "*" in origins else None

    def lines(self, origin: str | None) -> str:
        """The header lines of every response to this origin; `open` if they are the same for all origins."""
        return self.open if self.open is not None else self.listed(origin)

    def lines_at(self, path: str, origin: str | None) -> str:
        """The header lines of every response to this origin at this path.

        With `*`, web pages may still not act as an operator.
        """
        return self.listed(origin) if path.startswith("/cluster/") else self.lines(origin)

    def listed(self, origin: str | None) -> str:
        """The header lines where `*` does not apply: only pages of listed origins may read the response."""
        if origin in self._origins and origin is not None:
            return render([*_allowing(origin), ("vary", "Origin")])
        return render([*_SECURITY, ("vary", "Origin")])


def _allowing(origin: str) -> HeaderList:
    return [
        *_SECURITY,
        ("access-control-allow-origin", origin),
        ("access-control-expose-headers", EXPOSED),
    ]
