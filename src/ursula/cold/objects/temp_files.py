"""Files on their way to the store: where they are written before they are objects."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .store import UNFINISHED, Store, StoreUnavailable
from .ulid import new_ulid


class Unfinished:
    """Beside the objects, where those are files, so that nothing must be copied; else in `scratch`."""

    def __init__(self, store: Store, scratch: Path) -> None:
        own = store.local_path("any")
        self._folder = scratch if own is None else own.parent / UNFINISHED

    def new_path(self, kind: str) -> Path:
        """A name that is free and tells what it will be, in a folder that is there. Blocking."""
        with as_store_failure():
            self._folder.mkdir(parents=True, exist_ok=True)
        return self._folder / f"{new_ulid()}.{kind}"


@contextmanager
def as_store_failure() -> Iterator[None]:
    """What the disk refuses on the way to the store is the store's failure."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise StoreUnavailable(f"it cannot be written on its way to the store: {reason}") from error
