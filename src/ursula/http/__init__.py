"""The wire: routing, headers, bodies, JSON mode, SSE, long-poll, errors. Header names live only here."""

import os

# Granian's allocator reads this when it is loaded. Without it, what 10,000 connections needed is given back
# only when more requests come; with it, within seconds, by a thread of its own.
os.environ.setdefault("_RJEM_MALLOC_CONF", "background_thread:true,dirty_decay_ms:1000,muzzy_decay_ms:0")
