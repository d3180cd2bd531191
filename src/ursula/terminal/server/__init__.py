"""Commands that talk to a server, one per file, through `ursula.client`."""
