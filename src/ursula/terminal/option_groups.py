"""Groups of options that several commands share, each as one parameter of a command.

To Typer, every option is a parameter of a function. A group is a frozen dataclass whose fields are options
with defaults; `with_option_groups` shows them to Typer one by one and passes them on as one value.
"""

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any, TypeVar, get_type_hints

T = TypeVar("T")


def with_option_groups(command: Callable[..., T]) -> Callable[..., T]:
    """The command, with its option groups replaced by their options."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, type[Any]] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}  # type: ignore[misc]
    own = [
        parameter.replace(annotation=hints[name])
        for name, parameter in signature(command).parameters.items()
        if name not in groups
    ]
    shared = [option for group in groups.values() for option in _options(group)]

    @wraps(command)
    def run(**given: Any) -> T:
        filled = {
            name: group(**{field.name: given.pop(field.name) for field in fields(group)})
            for name, group in groups.items()
        }
        return command(**given, **filled)

    run.__signature__ = Signature([*own, *shared])  # type: ignore[attr-defined]
    run.__annotations__ = {option.name: option.annotation for option in (*own, *shared)}
    return run


def _options(group: type[Any]) -> list[Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        Parameter(field.name, Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name])
        for field in fields(group)
    ]
