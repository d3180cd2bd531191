"""Live reads of streams and feeds: requests that wait for something new, by long-poll or SSE."""
