"""The object of an operation: a stream or a bucket, and how patiently to retry."""

from collections.abc import Mapping

from .address import Address, bucket_path
from .connection.retry import FOREVER, Patience, perform
from .connection.steps import Answer, Request, Steps
from .results import StreamInfo


class StreamTarget:
    """A stream, and what the client remembers about it."""

    def __init__(
        self,
        address: Address,
        patience: Patience,
        live_patience: Patience = FOREVER,
        content_type: str | None = None,
    ) -> None:
        self.address = address
        self.patience = patience
        self.live_patience = live_patience
        self.content_type = content_type
        self.takes_batches = True
        """False once the server turns out not to have `append-batch`, which only Ursula has."""

    @property
    def path(self) -> str:
        """The path or URL of the stream, which errors have too."""
        return self.address.path

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.address}>"


class BucketTarget:
    """A bucket."""

    def __init__(self, name: str, patience: Patience, live_patience: Patience = FOREVER) -> None:
        self.name = name
        self.patience = patience
        self.live_patience = live_patience

    @property
    def path(self) -> str:
        """The path of the bucket, which errors have too."""
        return bucket_path(self.name)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"


def head(target: StreamTarget) -> Steps[StreamInfo]:
    """The current state of the stream. This does not renew its lifetime."""
    request = Request("HEAD", target.address.path, repeatable=True)
    info = StreamInfo.of((yield from perform(request, target.patience)))
    target.content_type = info.content_type
    return info


def content_type_of(target: StreamTarget) -> Steps[str]:
    """The stream's content type. The server is asked for it only once."""
    if target.content_type is None:
        yield from head(target)
    return target.content_type or ""


def get(target: StreamTarget, path: str, params: Mapping[str, str] | None = None) -> Steps[Answer]:
    """The response to a GET, which is always safe to retry."""
    return (yield from perform(Request("GET", path, params or {}, repeatable=True), target.patience))
