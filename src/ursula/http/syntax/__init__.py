"""How requests and answers are spelled: paths, headers, queries, tokens. No I/O, no state."""
