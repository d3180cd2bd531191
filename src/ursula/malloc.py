"""Returns freed memory to the operating system.

Flushes and merges need a lot of memory for a short time, and a flush frees the messages that it has stored.
The allocators of Arrow and of C keep freed memory for a long time, or forever.
"""

import ctypes

import pyarrow as pa


def trim_malloc() -> None:
    """Return unused memory to the system. Takes some milliseconds, so call it in a thread."""
    pa.default_memory_pool().release_unused()
    trim = getattr(
        ctypes.CDLL(None), "malloc_trim", None
    )  # glibc has it; other C libraries manage memory differently
    if trim is not None:
        trim(0)
