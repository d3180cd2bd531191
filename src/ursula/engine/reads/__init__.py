"""Reads: from memory at once, from the store by waiting for it."""
