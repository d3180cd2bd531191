"""A running group: propose, log, apply, answer; watchers, expiry, recovery. Knows nothing of HTTP."""

import os

# Arrow's allocator reads this when it is loaded. By default it keeps memory that a thread has freed for a
# second, and flushes, merges and reads take turns in many threads: together they kept a fifth of the peak.
os.environ.setdefault("MIMALLOC_PURGE_DELAY", "10")
