"""Special offsets at which a read may begin."""

BEGINNING = -1
TAIL = -2
