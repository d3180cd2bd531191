"""Commands that work on a store directly, without a server."""
