"""Keeping the store tidy: merging segments, and removing what nothing needs any more."""
