"""JSON bodies: each element of a top-level array is a message."""

from ...model.text.json_messages import JsonInvalid, JsonTooLarge, split
from ..errors import Problem


def split_body(body: bytes, may_be_empty: bool) -> tuple[tuple[bytes, ...], str | None]:
    """The messages of a JSON body, or why there are none to store.

    The reason is returned and not raised, because other refusals (a closed stream, say) come before it.
    """
    try:
        messages = split(body)
    except JsonTooLarge as error:
        raise Problem("body_too_large", str(error)) from None
    except JsonInvalid as error:
        return (), str(error)
    if not messages and not may_be_empty:
        return (), "an empty array has no messages"
    return messages, None
