"""The store: what leaves the log, as objects. It knows names and bytes, not streams and not HTTP."""
