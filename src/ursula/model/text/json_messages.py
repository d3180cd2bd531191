"""JSON mode: checks a body and splits it into messages, each with its text exactly as it was sent.

It runs before a command is made, never while one is applied, because a recursion limit is not deterministic.
"""

import msgspec

from ..limits import JSON_BODY_BYTES_MAX, JSON_MESSAGES_MAX

_one = msgspec.json.Decoder(msgspec.Raw)
_many = msgspec.json.Decoder(list[msgspec.Raw])

_BLANK = b" \t\r\n"


class JsonInvalid(ValueError):
    """The body is not JSON, or holds no message; the text says why."""


class JsonTooLarge(ValueError):
    """The body is larger than JSON mode allows in one request."""


def split(body: bytes, may_be_empty: bool = False) -> tuple[bytes, ...]:
    """The messages of a body: the elements of an array (one level), or the single value that it is.

    Raises JsonInvalid or JsonTooLarge. Only the body that creates a stream may be an empty array.
    """
    if len(body) > JSON_BODY_BYTES_MAX:
        raise JsonTooLarge(f"a JSON body may have {JSON_BODY_BYTES_MAX} bytes, this one has {len(body)}")
    try:
        body.decode()  # the decoder below does not check UTF-8 inside raw values
        messages = _many.decode(body) if body.lstrip(_BLANK).startswith(b"[") else [_one.decode(body)]
    except UnicodeDecodeError as error:
        raise JsonInvalid(f"the body is not UTF-8: {error.reason} at byte {error.start}") from None
    except RecursionError:
        raise JsonInvalid("the body is nested too deeply") from None
    except msgspec.DecodeError as error:
        raise JsonInvalid(f"the body is not valid JSON: {error}") from None
    if not messages and not may_be_empty:
        raise JsonInvalid("an empty array has no messages")
    if len(messages) > JSON_MESSAGES_MAX:
        raise JsonTooLarge(f"a body may have {JSON_MESSAGES_MAX} messages, this one has {len(messages)}")
    return tuple(map(bytes, messages))
