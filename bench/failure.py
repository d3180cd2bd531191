"""The one way in which a measurement fails."""


class Failed(Exception):
    """A server or a load did not do what was asked; the text says what."""
