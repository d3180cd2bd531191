"""Reads whose bytes lie in the store. Each waits for them in a task of its own, and nobody else does."""

from typing import TypeVar

from ...cold.store import ObjectDamaged, ObjectMissing, StoreUnavailable
from ...engine.later import Later
from ...model.outcomes import Refused
from ..errors import Problem

T = TypeVar("T")


async def fetch(later: Later[T]) -> T | Refused:
    """What a read came to; what is wrong with the store is a problem of the request."""
    try:
        return await later.get()
    except (ObjectMissing, ObjectDamaged) as error:
        raise Problem("object_damaged", str(error)) from error
    except StoreUnavailable as error:
        raise Problem("store_unavailable", str(error)) from error
