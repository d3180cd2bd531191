"""How a stream or a bucket is read: chunks, records, bootstrap, and live tails and feeds."""
