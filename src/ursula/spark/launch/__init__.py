"""Starting a session: with the right Java, without its chatter, and with our package on the executors."""
