"""Streams: write, read and follow them, and their attributes and snapshots."""
