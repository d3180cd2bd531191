"""JSON text: compact as the client sends it, and decoded without the limits of Python's own decoder.

Python's decoder rejects integers of more than 4,300 digits and nesting deeper than its stack; a server
accepts both. A text that it rejects for one of these reasons is decoded again, slowly and without recursion.
"""

import json
import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any, TypeAlias

from ..errors import InvalidAnswer

_VERBATIM = json.JSONDecoder(parse_int=str, parse_float=str)
_SPACE = re.compile(r"[ \t\r\n]*")
_TOKEN = re.compile(r'[ \t\r\n]*([\[\]{},:]|"(?:[^"\\]|\\.)*"|[^\[\]{},:" \t\r\n]+)[ \t\r\n]*', re.DOTALL)
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)")
_OPENING, _CLOSING = ("[", "{"), ("]", "}")


def encode(value: Any) -> bytes:
    """A value as compact JSON text."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def decode(text: bytes | str) -> Any:
    """The value of a JSON text. An integer that is too long for Python's `int` becomes an exact `Decimal`."""
    try:
        return _decoded(text)
    except (ValueError, RecursionError) as error:
        raise InvalidAnswer(f"the server sent JSON that cannot be decoded: {error}") from error


def elements(array: bytes) -> list[str]:
    """The text of each element of a JSON array, exactly as written."""
    try:
        text = array.decode()
        try:
            return list(_elements(text))
        except RecursionError:
            return list(_elements_of_tokens(text))
    except (ValueError, IndexError) as error:
        raise InvalidAnswer(f"the server did not send a JSON array: {error}") from error


def _decoded(text: bytes | str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        raise
    except (ValueError, RecursionError):
        return _Builder().build(text if isinstance(text, str) else text.decode())


def _elements(text: str) -> Iterator[str]:
    at = _skip(text, text.index("[") + 1)
    while text[at] != "]":
        _, end = _VERBATIM.raw_decode(text, at)
        yield text[at:end]
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)
        elif text[at] != "]":
            raise ValueError(f"{text[at]!r} between elements")


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return at if found is None else found.end()


def _elements_of_tokens(text: str) -> Iterator[str]:
    depth, start, end = 0, 0, 0
    for token in _tokens(text):
        mark = token[1]
        if depth == 1 and mark in (",", "]"):
            if end > start:
                yield text[start:end]
            start = end = token.end()
        elif depth == 0:
            start = end = token.end()
        else:
            end = token.end(1)
        depth += (mark in _OPENING) - (mark in _CLOSING)


def _tokens(text: str) -> Iterator[re.Match[str]]:
    at = 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            raise ValueError(f"no JSON at character {at}")
        yield token
        at = token.end()


class _Builder:
    """Builds a value token by token, with its own stack. A state takes a token and returns the next state."""

    def __init__(self) -> None:
        self._root: list[Any] = []
        self._open: list[list[Any] | dict[str, Any]] = [self._root]
        self._keys: list[str] = []

    def build(self, text: str) -> Any:
        """The value of a text."""
        state: _State = self._value
        for token in _tokens(text):
            state = state(token[1])
        if state != self._after or len(self._open) > 1:
            raise ValueError("the text ends too soon")
        return self._root[0]

    def _value(self, token: str) -> "_State":
        if token == "[":
            return self._begin([], self._first_value)
        if token == "{":
            return self._begin({}, self._first_key)
        return self._put(_scalar(token))

    def _first_value(self, token: str) -> "_State":
        return self._end() if token == "]" else self._value(token)

    def _key(self, token: str) -> "_State":
        if not token.startswith('"'):
            raise ValueError(f"{token[:20]!r} is not a name")
        self._keys.append(json.loads(token))
        return self._colon

    def _first_key(self, token: str) -> "_State":
        return self._end() if token == "}" else self._key(token)

    def _colon(self, token: str) -> "_State":
        if token != ":":
            raise ValueError(f"{token[:20]!r} instead of a colon")
        return self._value

    def _after(self, token: str) -> "_State":
        is_array = isinstance(self._open[-1], list)
        if len(self._open) > 1 and token == ",":
            return self._value if is_array else self._key
        if len(self._open) > 1 and token == ("]" if is_array else "}"):
            return self._end()
        raise ValueError(f"{token[:20]!r} after a value")

    def _begin(self, container: list[Any] | dict[str, Any], state: "_State") -> "_State":
        self._put(container)
        self._open.append(container)
        return state

    def _end(self) -> "_State":
        self._open.pop()
        return self._after

    def _put(self, value: Any) -> "_State":
        inside = self._open[-1]
        if isinstance(inside, list):
            inside.append(value)
        else:
            inside[self._keys.pop()] = value
        return self._after


_State: TypeAlias = Callable[[str], "_State"]


def _scalar(token: str) -> Any:
    if _INTEGER.fullmatch(token):
        try:
            return int(token)
        except ValueError:
            return Decimal(token)  # in linear time, with no limit
    return json.loads(token)
