"""The syntax of requests and responses: paths, headers, queries, tokens. No I/O, no state."""
