"""Where streams and buckets are: their names, and the paths of them."""

from dataclasses import dataclass
from urllib.parse import quote, unquote, urlsplit

FLAT_PREFIX = "/v1/stream/"
DEFAULT_BUCKET = "_default"
RESERVED_STREAM = "streams"


@dataclass(frozen=True)
class StreamAddress:
    """A stream by name. On the flat route its bucket comes into being with it."""

    bucket: str
    stream: str
    flat: bool = False

    @classmethod
    def parse(cls, text: str) -> "StreamAddress":
        """`bucket/stream`; with more slashes, or as `/v1/stream/...`, it is on the flat route."""
        if text.startswith(FLAT_PREFIX):
            return cls._flat(text[len(FLAT_PREFIX) :])
        bucket, slash, stream = text.removeprefix("/").partition("/")
        if not slash:
            raise ValueError(f"{text!r} is not a stream: write bucket/stream, or {FLAT_PREFIX}{text}")
        if not bucket or not stream:
            raise ValueError(f"{text!r} is not a stream: write bucket/stream")
        return cls(bucket, stream, flat="/" in stream or stream == RESERVED_STREAM)

    @classmethod
    def _flat(cls, name: str) -> "StreamAddress":
        if not name:
            raise ValueError(f"a stream has a name: write {FLAT_PREFIX}name")
        bucket, slash, stream = name.partition("/")
        return cls(bucket, stream, flat=True) if slash else cls(DEFAULT_BUCKET, name, flat=True)

    def __str__(self) -> str:
        return f"{self.bucket}/{self.stream}"

    @property
    def path(self) -> str:
        """Where the stream is."""
        if not self.flat:
            return f"/{quote(self.bucket, safe='')}/{quote(self.stream, safe='')}"
        name = self.stream if self._is_default else f"{self.bucket}/{self.stream}"
        return FLAT_PREFIX + quote(name, safe="/")

    @property
    def has_parts(self) -> bool:
        """Whether attributes, snapshots and the like can be reached: not for an id with a slash."""
        return "/" not in self.stream and self.stream != RESERVED_STREAM

    def part(self, *names: str) -> str:
        """Where something that belongs to the stream is."""
        if not self.has_parts:
            raise ValueError(f"{self} is on the flat route only, which has no {names[0]}")
        return "/".join((f"/{quote(self.bucket, safe='')}/{quote(self.stream, safe='')}", *names))

    @property
    def _is_default(self) -> bool:
        return self.bucket == DEFAULT_BUCKET and "/" not in self.stream


def bucket_path(bucket: str, *names: str) -> str:
    """Where a bucket, or something of it, is."""
    return "/".join((f"/{quote(bucket, safe='')}", *names))


def split_url(text: str) -> tuple[str | None, str]:
    """Server and name of a full URL; any other text is a name alone."""
    if not text.startswith(("http://", "https://")):
        return None, text
    parts = urlsplit(text)
    return f"{parts.scheme}://{parts.netloc}", unquote(parts.path)
