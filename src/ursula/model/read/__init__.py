"""Reads of the state: streams, records, feeds, and what is not in memory."""
