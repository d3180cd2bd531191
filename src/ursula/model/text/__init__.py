"""Text that is checked: media types, JSON bodies, attributes."""
