"""Events as applications write them: runs of agents, page views and requests, as JSON. Always the same."""

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

_BEGIN = datetime(2026, 3, 2, 8, tzinfo=UTC)
_TOOLS = ("read_file", "write_file", "search", "run_tests", "list_folder", "fetch_page")
_ROUTES = ("/", "/login", "/orders", "/orders/{id}", "/search", "/settings", "/help/articles/{id}")
_BROWSERS = (
    "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/537.36 Chrome/141.0.0.0 Safari/537.36",
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64; rv:144.0) Gecko/20100101 Firefox/144.0",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 18_6 like Mac OS X) AppleWebKit/605.1.15 Version/18.6 Mobile Safari",
)
_WORDS = [
    *("the", "a", "of", "to", "and", "in", "is", "that", "for", "it", "as", "with", "on", "this", "be"),
    *("are", "by", "an", "at", "from", "or", "not", "which", "was", "have", "has", "can", "will", "when"),
    *("if", "all", "but", "they", "one", "more", "there", "we", "you", "file", "test", "function"),
    *("server", "stream", "error", "read", "write", "change", "result", "value", "line", "module"),
    *("returns", "should", "first", "then", "after", "before", "because", "found", "fails", "passes"),
    *("missing", "update", "check", "request", "answer", "message", "offset", "customer", "order"),
    *("payment", "delivery", "report", "account", "number", "list", "table", "index", "search", "page"),
    *("button", "form", "address", "invoice", "shipping", "country", "language", "session"),
]
_WEIGHTS = [1 / (rank + 2) for rank in range(len(_WORDS))]


class Events:
    """The events of one session, in order."""

    def __init__(self, number: int) -> None:
        self._draw = random.Random(number)
        self._at = _BEGIN + timedelta(seconds=self._draw.uniform(0, 3600))
        self._sequence = 0
        self._session = f"ses_{self._token(16)}"
        self._user = f"user-{self._draw.randrange(5000)}"
        self._browser = self._draw.choice(_BROWSERS)

    def __iter__(self) -> Iterator[bytes]:
        makers = (self._view, self._request, self._tool_call, self._tool_result, self._words)
        while True:
            kind, data = self._draw.choices(makers, (4, 4, 2, 2, 1))[0]()
            self._at += timedelta(milliseconds=self._draw.expovariate(1 / 800))
            self._sequence += 1
            yield msgspec.json.encode(
                {
                    "id": f"evt_{self._token(16)}",
                    "type": kind,
                    "time": self._at.isoformat(timespec="milliseconds"),
                    "session_id": self._session,
                    "user_id": self._user,
                    "sequence": self._sequence,
                    "data": data,
                }
            )

    def _token(self, digits: int) -> str:
        return f"{self._draw.getrandbits(digits * 4):0{digits}x}"

    def _route(self) -> str:
        return self._draw.choice(_ROUTES).replace("{id}", str(self._draw.randrange(100_000)))

    def _view(self) -> tuple[str, dict[str, Any]]:
        return "page.viewed", {
            "path": self._route(),
            "referrer": self._route(),
            "browser": self._browser,
            "viewport": {"width": 1440, "height": 900},
            "load_ms": round(self._draw.lognormvariate(6, 0.5)),
        }

    def _request(self) -> tuple[str, dict[str, Any]]:
        return "request.finished", {
            "method": self._draw.choices(("GET", "POST", "PUT"), (8, 2, 1))[0],
            "path": self._route(),
            "status": self._draw.choices((200, 201, 304, 404, 500), (80, 8, 8, 3, 1))[0],
            "duration_ms": round(self._draw.lognormvariate(3, 0.8), 2),
            "response_bytes": round(self._draw.lognormvariate(8, 1)),
            "region": self._draw.choice(("eu-central", "us-east")),
        }

    def _tool_call(self) -> tuple[str, dict[str, Any]]:
        return "tool.called", {
            "tool": self._draw.choice(_TOOLS),
            "call_id": f"call_{self._token(8)}",
            "arguments": {"path": f"src/{self._text(1)}/{self._text(1)}.py", "query": self._text(3)},
        }

    def _tool_result(self) -> tuple[str, dict[str, Any]]:
        return "tool.finished", {
            "call_id": f"call_{self._token(8)}",
            "is_error": self._draw.random() < 0.05,
            "duration_ms": round(self._draw.lognormvariate(4, 1)),
            "usage": {"input_tokens": self._draw.randrange(9000), "output_tokens": self._draw.randrange(900)},
        }

    def _words(self) -> tuple[str, dict[str, Any]]:
        return "message.sent", {"role": "assistant", "text": self._text(self._draw.randrange(8, 60))}

    def _text(self, words: int) -> str:
        return " ".join(self._draw.choices(_WORDS, _WEIGHTS, k=words))
