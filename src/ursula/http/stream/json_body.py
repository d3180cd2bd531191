"""JSON bodies: each value of a top-level array is a message."""

from ...model.text.json_messages import JsonInvalid, JsonTooLarge, split
from ..errors import Problem


def split_body(body: bytes, may_be_empty: bool) -> tuple[tuple[bytes, ...], str | None]:
    """The messages of a JSON body, or why it has none that can be stored.

    The reason is not raised: a closed stream, say, is reported before a body that makes no sense.
    """
    try:
        messages = split(body)
    except JsonTooLarge as error:
        raise Problem("body_too_large", str(error)) from None
    except JsonInvalid as error:
        return (), str(error)
    if not messages and not may_be_empty:
        return (), "an empty array holds no message"
    return messages, None
