"""Headers and query parameters that the caller adds: fixed, or computed anew for each request."""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

Text: TypeAlias = str | Callable[[], str]
AsyncText: TypeAlias = str | Callable[[], str | Awaitable[str]]


@dataclass(frozen=True)
class Options:
    """What is added to every request. Where both name the same thing, the protocol's own value counts."""

    headers: Mapping[str, AsyncText] = field(default_factory=dict)
    params: Mapping[str, AsyncText] = field(default_factory=dict)

    def plus(
        self, headers: Mapping[str, AsyncText] | None, params: Mapping[str, AsyncText] | None
    ) -> "Options":
        """These and others, which take precedence."""
        named = {name.lower(): value for name, value in (headers or {}).items()}
        return Options({**self.headers, **named}, {**self.params, **(params or {})})


@dataclass(frozen=True)
class Extras:
    """The options of one request."""

    headers: Mapping[str, str]
    params: Mapping[str, str]


def extras(options: Options) -> Extras:
    """Call the functions among the options; one that must be awaited is a mistake here."""
    return Extras(
        {name: _text(name, _value(given)) for name, given in options.headers.items()},
        {name: _text(name, _value(given)) for name, given in options.params.items()},
    )


async def awaited_extras(options: Options) -> Extras:
    """Call the functions among the options, and await those that need it."""
    return Extras(
        {name: _text(name, await _awaited(given)) for name, given in options.headers.items()},
        {name: _text(name, await _awaited(given)) for name, given in options.params.items()},
    )


def _value(given: AsyncText) -> object:
    return given() if callable(given) else given


async def _awaited(given: AsyncText) -> object:
    value = _value(given)
    return await value if inspect.isawaitable(value) else value


def _text(name: str, value: object) -> str:
    if isinstance(value, str):
        return value
    if inspect.iscoroutine(value):
        value.close()  # or Python warns that nobody awaited it
    if inspect.isawaitable(value):
        raise TypeError(f"the function for {name!r} must be awaited: use AsyncClient, or a plain function")
    raise TypeError(f"{name!r} must be text, not {type(value).__name__}")
