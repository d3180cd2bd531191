"""How a session starts: the right Java, without its chatter, and with our package on the executors."""
