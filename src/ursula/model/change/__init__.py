"""What a command does once it is decided: one function per command, which can no longer fail."""
