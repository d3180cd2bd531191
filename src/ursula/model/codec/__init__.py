"""Log entries and events as bytes, and a dump of a whole state."""
