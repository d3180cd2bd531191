"""Headers and query parameters that the caller adds: fixed values, or functions called for each request."""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

Text: TypeAlias = str | Callable[[], str]
AsyncText: TypeAlias = str | Callable[[], str | Awaitable[str]]


@dataclass(frozen=True)
class RequestOptions:
    """Headers and parameters for every request. The protocol's own take precedence over these."""

    headers: Mapping[str, AsyncText] = field(default_factory=dict)
    params: Mapping[str, AsyncText] = field(default_factory=dict)

    def plus(
        self, headers: Mapping[str, AsyncText] | None, params: Mapping[str, AsyncText] | None
    ) -> "RequestOptions":
        """These options and others, which take precedence."""
        named = {name.lower(): value for name, value in (headers or {}).items()}
        return RequestOptions({**self.headers, **named}, {**self.params, **(params or {})})


@dataclass(frozen=True)
class ResolvedOptions:
    """The headers and parameters of one request, as text."""

    headers: Mapping[str, str]
    params: Mapping[str, str]


def client_options(
    auth: AsyncText | None,
    headers: Mapping[str, AsyncText] | None,
    params: Mapping[str, AsyncText] | None,
) -> RequestOptions:
    """The options of a client; `auth` is its Authorization header."""
    authorization = {} if auth is None else {"authorization": auth}
    return RequestOptions().plus(authorization, None).plus(headers, params)


def resolve(options: RequestOptions) -> ResolvedOptions:
    """Call the functions among the options. An asynchronous one is an error here."""
    return ResolvedOptions(
        {name: _text(name, _value(given)) for name, given in options.headers.items()},
        {name: _text(name, _value(given)) for name, given in options.params.items()},
    )


async def resolve_async(options: RequestOptions) -> ResolvedOptions:
    """Call the functions among the options, and await the asynchronous ones."""
    return ResolvedOptions(
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
        value.close()  # otherwise Python warns that it was never awaited
    if inspect.isawaitable(value):
        raise TypeError(f"the function for {name!r} must be awaited: use AsyncClient, or a plain function")
    raise TypeError(f"{name!r} must be text, not {type(value).__name__}")
