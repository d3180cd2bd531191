"""How many rounds of faults are run, and from which seed."""

import os
import random

ROUNDS = int(os.environ.get("URSULA_FAULT_ROUNDS", "3"))
IS_LONG = ROUNDS > 3
"""Whether there is time for every variant of a fault, and for long ones."""

SEED = int(os.environ.get("URSULA_FAULT_SEED", str(random.SystemRandom().randrange(1 << 32))))


def seeded(name: str) -> random.Random:
    """Random numbers for a test; a failed test shows how to repeat them."""
    print(f"repeat with URSULA_FAULT_SEED={SEED}")
    return random.Random(f"{SEED} {name}")
