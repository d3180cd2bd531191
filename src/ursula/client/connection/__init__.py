"""How an operation reaches the server: requests, retries, caller options, and the two shells over httpx."""
