"""Reading a bucket, once or continuously: options, the view of a read, its partitions and their rows."""
