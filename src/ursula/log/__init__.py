"""Logs: opaque entries in order. The interface and its implementations, which know nothing of streams."""
