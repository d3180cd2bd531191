"""The few calls of Granian's RSGI objects that we use, as types.

Facts behind the code that uses them, each tried: the path arrives percent-decoded, with invalid
UTF-8 as U+FFFD; `keys` names a repeated header once; `get_all` gives every value that is ASCII, so
an empty list for a header that is there but is not; calling the protocol gives a future of the
whole body, which fails if the client went away; `send_bytes` hands over at once and never waits.
"""

from collections.abc import AsyncIterator, Callable, Generator
from typing import Any, Protocol

HeaderList = list[tuple[str, str]]


class Headers(Protocol):
    def keys(self) -> list[str]: ...
    def get(self, key: str) -> str | None: ...
    def get_all(self, key: str) -> list[str]: ...
    def __contains__(self, key: str) -> bool: ...


class Scope(Protocol):
    method: str
    path: str
    query_string: str
    scheme: str

    @property
    def headers(self) -> Headers: ...


class Future(Protocol):
    def __await__(self) -> Generator[Any, None, bytes]: ...
    def add_done_callback(self, callback: Callable[[Any], None]) -> None: ...
    def cancel(self) -> bool: ...
    def result(self) -> bytes: ...


class Transport(Protocol):
    def send_bytes(self, data: bytes) -> object: ...


class Protocol_(Protocol):
    def __call__(self) -> Future: ...
    def __aiter__(self) -> AsyncIterator[bytes]: ...
    def client_disconnect(self) -> Future: ...
    def response_empty(self, status: int, headers: HeaderList) -> None: ...
    def response_bytes(self, status: int, headers: HeaderList, body: bytes) -> None: ...
    def response_stream(self, status: int, headers: HeaderList) -> Transport: ...


class Watcher(Protocol):
    scope: Scope
    proto: Protocol_
