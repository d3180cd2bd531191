"""State objects: the manifests, the rows of the state, and the history of generations."""
