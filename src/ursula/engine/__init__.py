"""A running group: propose, log, apply, answer; watchers, expiry, recovery. Knows nothing of HTTP."""

import os

# Arrow's allocator reads this when it is loaded. By itself it keeps what a thread has freed for a second; here
# flushes, merges and reads take turns in many threads, and what each of them kept was a third of all memory.
os.environ.setdefault("MIMALLOC_PURGE_DELAY", "10")
