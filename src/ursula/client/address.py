"""The addresses of streams and buckets: names, and paths or URLs that are used exactly as given."""

from dataclasses import dataclass
from typing import TypeAlias
from urllib.parse import quote, unquote, urlsplit, urlunsplit

FLAT_PREFIX = "/v1/stream/"
DEFAULT_BUCKET = "_default"
RESERVED_STREAM = "streams"


@dataclass(frozen=True)
class StreamAddress:
    """A stream by name. On the flat route, creating a stream also creates its bucket."""

    bucket: str
    stream: str
    flat: bool = False

    @classmethod
    def parse(cls, text: str) -> "StreamAddress":
        """Parse `bucket/stream`. A name with more slashes, or `/v1/stream/...`, is on the flat route."""
        if text.startswith(FLAT_PREFIX):
            return cls._flat(text[len(FLAT_PREFIX) :])
        bucket, slash, stream = text.removeprefix("/").partition("/")
        if not slash:
            raise ValueError(
                f"{text!r} is not a stream: write bucket/stream, {FLAT_PREFIX}{bucket}, or a full URL"
            )
        if not bucket or not stream:
            raise ValueError(f"{text!r} is not a stream: write bucket/stream")
        return cls(bucket, stream, flat="/" in stream or stream == RESERVED_STREAM)

    @classmethod
    def _flat(cls, name: str) -> "StreamAddress":
        if not name:
            raise ValueError(f"the name of the stream is missing: write {FLAT_PREFIX}name")
        bucket, slash, stream = name.partition("/")
        return cls(bucket, stream, flat=True) if slash else cls(DEFAULT_BUCKET, name, flat=True)

    def __str__(self) -> str:
        return f"{self.bucket}/{self.stream}"

    @property
    def path(self) -> str:
        """The path of the stream."""
        if not self.flat:
            return f"/{quote(self.bucket, safe='')}/{quote(self.stream, safe='')}"
        name = self.stream if self._is_default else f"{self.bucket}/{self.stream}"
        return FLAT_PREFIX + quote(name, safe="/")

    @property
    def has_parts(self) -> bool:
        """Whether the stream has routes for attributes, snapshots and so on: not if its id has a slash."""
        return "/" not in self.stream and self.stream != RESERVED_STREAM

    def part(self, *names: str) -> str:
        """The path of something that belongs to the stream."""
        if not self.has_parts:
            raise ValueError(f"{self} is on the flat route only, which has no {names[0]}")
        return "/".join((f"/{quote(self.bucket, safe='')}/{quote(self.stream, safe='')}", *names))

    @property
    def _is_default(self) -> bool:
        return self.bucket == DEFAULT_BUCKET and "/" not in self.stream


@dataclass(frozen=True)
class StreamUrl:
    """A stream at exactly this URL, or at exactly this path on the client's server."""

    url: str

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        is_url = is_full_url(self.url) and parts.hostname
        if not is_url and not self.url.startswith("/"):
            raise ValueError(f"{self.url!r} is not the address of a stream: write http://host/path, or /path")
        if parts.fragment:
            raise ValueError(f"{self.url!r} has a fragment, which is never sent")

    def __str__(self) -> str:
        return self.url

    @property
    def path(self) -> str:
        """The URL or path of the stream."""
        return self.url

    @property
    def has_parts(self) -> bool:
        """Whether the path has Ursula's form, with routes for attributes, snapshots and the like."""
        name = self._name
        return name is not None and name.has_parts

    def part(self, *names: str) -> str:
        """The URL or path of something that belongs to the stream."""
        name = self._name
        if name is None:
            raise ValueError(f"{self} is not of the form /bucket/stream, so it has no {names[0]}")
        return urlunsplit(urlsplit(self.url)._replace(path=name.part(*names)))

    @property
    def _name(self) -> StreamAddress | None:
        path = urlsplit(self.url).path
        if flat := path.removeprefix(FLAT_PREFIX) if path.startswith(FLAT_PREFIX) else "":
            return StreamAddress.parse(FLAT_PREFIX + unquote(flat))
        match path.split("/"):
            case ["", bucket, stream] if bucket and stream:
                return StreamAddress(unquote(bucket), unquote(stream))
        return None


Address: TypeAlias = StreamAddress | StreamUrl


def address_of(stream: str | Address) -> Address:
    """The address of a stream. A full URL is used as it is; any other text is a name."""
    if not isinstance(stream, str):
        return stream
    if is_full_url(stream):
        return StreamUrl(stream)
    try:
        return StreamAddress.parse(stream)
    except ValueError as error:
        if not stream.startswith("/") or stream.startswith(FLAT_PREFIX):
            raise
        raise ValueError(f"{error}; for exactly this path, use stream_at({stream!r})") from None


def is_full_url(text: str) -> bool:
    """Whether a text is a URL with a server in it."""
    return text.startswith(("http://", "https://"))


def bucket_path(bucket: str, *names: str) -> str:
    """The path of a bucket, or of something that belongs to it."""
    return "/".join((f"/{quote(bucket, safe='')}", *names))


def split_url(text: str) -> tuple[str | None, str]:
    """The server and the name in a full URL. Any other text is only a name."""
    if not is_full_url(text):
        return None, text
    parts = urlsplit(text)
    return f"{parts.scheme}://{parts.netloc}", unquote(parts.path)
