"""A running group: batches of commands, their log entries, expiry, watchers, and eviction from memory."""
