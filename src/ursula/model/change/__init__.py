"""The changes that commands make once they are decided: one function per command, which cannot fail."""
