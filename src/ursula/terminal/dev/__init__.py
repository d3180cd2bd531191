"""`ursula dev`: a whole cluster on one machine, to try it."""
