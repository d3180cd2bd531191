"""The syntax of requests and answers: paths, headers, queries, tokens. No I/O, no state."""
