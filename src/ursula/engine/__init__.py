"""A running group: propose, log, apply, answer; watchers, expiry, recovery. Knows nothing of HTTP."""
