"""Parsing and checking text: media types, JSON bodies, attributes."""
