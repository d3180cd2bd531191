"""How a node starts: its data folder, whose store it is, the state to begin with, and the heartbeat."""
