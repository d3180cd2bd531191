"""Reads of the state: streams, records and feeds, insofar as they are in memory."""
