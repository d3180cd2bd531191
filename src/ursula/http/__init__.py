"""The wire: routing, headers, bodies, JSON mode, SSE, long-poll, errors. Header names live only here."""
