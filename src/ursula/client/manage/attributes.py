"""The JSON object that an application attaches to a stream."""

from collections.abc import Mapping
from typing import Any

from ..connection.retry import perform
from ..connection.steps import Request, Steps
from ..formats.json_text import decode, encode
from ..results import ignored_attributes
from ..target import StreamTarget, get


def attributes(target: StreamTarget) -> Steps[dict[str, Any]]:
    """The attributes of the stream; an empty dictionary if it has none."""
    answer = yield from get(target, target.address.part("attrs"))
    found: dict[str, Any] = decode(answer.body)
    return found


def set_attributes(target: StreamTarget, attributes: Mapping[str, Any]) -> Steps[tuple[str, ...]]:
    """Replace all attributes: `title`, a text, and `metadata`, an object.

    Returns the names that the server ignored.
    """
    path = target.address.part("attrs")
    headers = {"content-type": "application/json"}
    request = Request("PUT", path, {}, headers, encode(attributes), repeatable=True)
    return ignored_attributes((yield from perform(request, target.patience)))


def clear_attributes(target: StreamTarget) -> Steps[None]:
    """Remove all attributes."""
    yield from set_attributes(target, {})
