"""What requests and answers look like on the wire."""

from typing import Any

import httpx

BINARY = {"content-type": "application/octet-stream"}
TEXT = {"content-type": "text/plain"}
JSON = {"content-type": "application/json"}
CLOSED = {"stream-closed": "true"}


def offset(number: int) -> str:
    """An offset as the server writes it."""
    return f"{number:020d}"


def producer(seq: int, epoch: int = 0, name: str = "writer") -> dict[str, str]:
    """The headers of a producer's request."""
    return {"producer-id": name, "producer-epoch": str(epoch), "producer-seq": str(seq)}


def make(api: httpx.Client, path: str, headers: dict[str, str] = BINARY, body: bytes = b"") -> httpx.Response:
    """Create a stream that was not there."""
    answer = api.put(path, headers=headers, content=body)
    assert answer.status_code == 201, answer.text
    return answer


def post(
    api: httpx.Client, path: str, body: bytes, headers: dict[str, str] = BINARY, status: int = 204
) -> httpx.Response:
    """Append to a stream."""
    answer = api.post(path, headers=headers, content=body)
    assert answer.status_code == status, answer.text
    return answer


def refused(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """Check that a request was refused as it should be; returns what the error tells besides."""
    assert answer.status_code == status, (answer.status_code, answer.text)
    assert answer.headers["content-type"] == "application/json"
    document = answer.json()
    assert list(document) == ["error"]
    error: dict[str, Any] = document["error"]
    assert error.pop("code") == code
    message = error.pop("message")
    assert isinstance(message, str)
    assert message
    return error


def content(api: httpx.Client, path: str) -> bytes:
    """Everything in a stream of bytes, or in a small one of any kind."""
    found, after = b"", "-1"
    while True:
        answer = api.get(path, params={"offset": after})
        assert answer.status_code == 200, answer.text
        found += answer.content
        if "stream-up-to-date" in answer.headers:
            return found
        assert after != answer.headers["stream-next-offset"]
        after = answer.headers["stream-next-offset"]
