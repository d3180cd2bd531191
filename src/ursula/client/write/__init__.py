"""How messages are written: plain appends, and producers that store each message exactly once."""
