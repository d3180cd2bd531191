"""Writing messages: plain appends, and producers that store each message exactly once."""
