"""The store: data that has left the log, as objects. It knows rows and bytes, but no commands and no HTTP."""
