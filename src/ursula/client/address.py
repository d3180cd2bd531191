"""Where streams and buckets are: by name, or at a path or URL that is used exactly as given."""

from dataclasses import dataclass
from typing import TypeAlias
from urllib.parse import quote, unquote, urlsplit, urlunsplit

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
            raise ValueError(
                f"{text!r} is not a stream: write bucket/stream, {FLAT_PREFIX}{bucket}, or a full URL"
            )
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


@dataclass(frozen=True)
class StreamUrl:
    """A stream at exactly this URL, or at exactly this path of the client's server."""

    url: str

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        is_url = is_full_url(self.url) and parts.hostname
        if not is_url and not self.url.startswith("/"):
            raise ValueError(f"{self.url!r} is no place of a stream: write http://host/path, or /path")
        if parts.fragment:
            raise ValueError(f"{self.url!r} has a fragment, which is never sent")

    def __str__(self) -> str:
        return self.url

    @property
    def path(self) -> str:
        """Where the stream is."""
        return self.url

    @property
    def has_parts(self) -> bool:
        """Whether the path is one of Ursula's, so that attributes, snapshots and the like can be reached."""
        name = self._name
        return name is not None and name.has_parts

    def part(self, *names: str) -> str:
        """Where something that belongs to the stream is."""
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


def address_of(text: str) -> Address:
    """The stream that a text means: a full URL is used as it is, anything else is a name."""
    return StreamUrl(text) if is_full_url(text) else StreamAddress.parse(text)


def is_full_url(text: str) -> bool:
    """Whether a text says which server it is about."""
    return text.startswith(("http://", "https://"))


def bucket_path(bucket: str, *names: str) -> str:
    """Where a bucket, or something of it, is."""
    return "/".join((f"/{quote(bucket, safe='')}", *names))


def split_url(text: str) -> tuple[str | None, str]:
    """Server and name of a full URL; any other text is a name alone."""
    if not is_full_url(text):
        return None, text
    parts = urlsplit(text)
    return f"{parts.scheme}://{parts.netloc}", unquote(parts.path)
