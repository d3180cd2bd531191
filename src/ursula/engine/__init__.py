"""A running group: propose, log, apply, reply; watchers, expiry, recovery. It knows nothing of HTTP."""

import os

# Arrow's allocator reads this when it is loaded. By default it holds on to memory that a thread has freed for
# a second. Flushes, merges and reads use many threads in turn, and together these held a fifth of the peak.
os.environ.setdefault("MIMALLOC_PURGE_DELAY", "10")
