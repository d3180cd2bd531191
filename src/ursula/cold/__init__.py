"""The store: data that has left the log, as objects. It knows rows and bytes, not commands and not HTTP."""
