"""The state in the store: manifests, state rows, and the history of generations."""
