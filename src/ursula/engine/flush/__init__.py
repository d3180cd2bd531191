"""Flushes: when they happen, and the segments and state rows that they write to the store."""
