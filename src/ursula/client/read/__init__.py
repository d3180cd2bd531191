"""Reading a stream or a bucket: chunks, records, bootstrap, and live tails and feeds."""
