"""Managing streams, buckets and the server itself: create, delete, describe, snapshot, flush."""
