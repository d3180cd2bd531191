"""Log positions: generation x 2^40 + the counter of an entry in its generation.

For the log, the store and Spark executors: the standard library only.
"""

GENERATION_SHIFT = 40
COUNTER_MASK = (1 << GENERATION_SHIFT) - 1
