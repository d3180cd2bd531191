"""Segments: Parquet files of messages and events, written, read and described."""
