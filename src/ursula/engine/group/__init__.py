"""A running group: commands in batches, expiry, watchers, and what stays in memory."""
