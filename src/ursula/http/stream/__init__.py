"""Streams: written, read, followed, and what belongs to one."""
