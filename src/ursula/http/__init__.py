"""HTTP: routing, headers, bodies, JSON mode, SSE, long-poll, errors. Header names appear only here."""
