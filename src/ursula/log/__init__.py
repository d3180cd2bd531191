"""Where commands are kept in order: the seam, and the logs behind it. Imports nothing else of ursula."""
