"""HTTP/1.1 on the event loop's own thread: connections, requests and the ways to answer them.

Nothing here knows about streams: requests go to a callable, which answers them.
"""
