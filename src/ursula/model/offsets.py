"""Offsets with a meaning of their own, where a read says where it begins."""

BEGINNING = -1
TAIL = -2
