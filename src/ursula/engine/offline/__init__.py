"""Work on a data folder or a store without a server: restore, verify, inspect."""
