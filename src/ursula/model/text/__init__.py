"""Parsing and checking of text: media types, JSON bodies, attributes."""
