"""Temporary files: where objects are written before they get their keys."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .store import Store, StoreUnavailable
from .ulid import new_ulid


class Unfinished:
    """A folder for unfinished files: in a local store, so that a rename is enough; otherwise `scratch`."""

    def __init__(self, store: Store, scratch: Path) -> None:
        self._folder = store.unfinished or scratch

    def new_path(self, kind: str) -> Path:
        """A new path that ends with `kind`, in a folder that exists. Blocking."""
        with as_store_failure():
            self._folder.mkdir(parents=True, exist_ok=True)
        return self._folder / f"{new_ulid()}.{kind}"


@contextmanager
def as_store_failure() -> Iterator[None]:
    """Turn an OSError of a temporary file into a failure of the store."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise StoreUnavailable(f"a temporary file for the store cannot be written: {reason}") from error
