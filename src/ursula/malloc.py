"""Memory that was given back to the allocators goes back to the system too.

A flush and a merge take memory for a moment and free it, and what is flushed is freed for good; the
allocators of Arrow and of C keep such memory for themselves for a long time, or forever.
"""

import ctypes

import pyarrow as pa


def trim_malloc() -> None:
    """Let the system have what nobody uses. Takes some milliseconds: for a thread."""
    pa.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # other C libraries have their own ways
    if trim is not None:
        trim(0)
