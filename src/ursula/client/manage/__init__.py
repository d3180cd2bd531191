"""How streams, buckets and the server itself are managed: create, delete, describe, snapshot, flush."""
