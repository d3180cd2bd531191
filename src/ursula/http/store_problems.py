"""Failures of the store as problems, so that the same failure has the same code in all requests."""

from typing import TypeVar

from ..cold.objects.store import ObjectDamaged, ObjectMissing, StoreFailed, StoreUnavailable
from ..engine.reads.deferred import Deferred
from ..model.outcomes import Refused
from .errors import Problem

T = TypeVar("T")


async def fetch_deferred(deferred: Deferred[T]) -> T | Refused:
    """Fetch a read whose bytes are in the store. Raises a Problem if the store fails."""
    try:
        return await deferred.get()
    except (ObjectMissing, ObjectDamaged) as error:
        raise Problem("object_damaged", str(error)) from error
    except StoreUnavailable as error:
        raise Problem("store_unavailable", str(error)) from error


def unreadable_snapshot(error: StoreFailed) -> Problem:
    """The problem of a snapshot whose blob cannot be read, either for now or because its bytes are lost."""
    if isinstance(error, StoreUnavailable):
        return Problem("store_unavailable", str(error))
    return Problem("object_damaged", f"the bytes of the snapshot are lost: {error}")
