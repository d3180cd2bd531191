"""Reads: from memory at once, or deferred until the store has responded."""
