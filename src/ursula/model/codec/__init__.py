"""Log entries and events as bytes."""
