"""What the state knows of the store: segments, pointers, dirty rows."""
