"""Buckets, and the feed of everything that happens in one."""
