"""Reads of the state: streams, records and feeds, as far as they are in memory."""
