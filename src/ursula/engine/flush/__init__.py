"""Moving what is old from memory to the store: the flusher, and the segments that it writes."""
