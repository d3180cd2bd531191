"""Content types: how they are compared, and which ones are special."""

from functools import lru_cache

JSON = "application/json"
DEFAULT = "application/octet-stream"


@lru_cache(maxsize=1024)
def media_type_of(content_type: str) -> str:
    """The part that is compared: type and subtype in lower case, without parameters."""
    return content_type.partition(";")[0].strip().lower()


def is_text(media_type: str) -> bool:
    """Whether the bytes may be sent in an event stream as they are."""
    return media_type == JSON or media_type.startswith("text/")
