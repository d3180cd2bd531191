"""Logs: opaque entries in order. The interface, and the logs that implement it; they know no streams."""
