"""How a bucket is read: options, what a read sees, its partitions and their rows; once, or following it."""
