"""Upkeep of the store: merging segments, and garbage collection."""
