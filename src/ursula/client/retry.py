"""How often and how long a request is tried again."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from .errors import OutcomeUnknown, Retryable, StreamError
from .numbers import check_number
from .steps import Answer, Request, Steps, call, sleep


@dataclass(frozen=True)
class Patience:
    """Delays that double from the first to the longest, until it is time to give up (None: never)."""

    first_seconds: float = 0.1
    longest_seconds: float = 5.0
    give_up_seconds: float | None = 30.0

    def __post_init__(self) -> None:
        check_number("first_seconds", self.first_seconds, 0)
        check_number("longest_seconds", self.longest_seconds, 0)
        if self.give_up_seconds is not None:
            check_number("give_up_seconds", self.give_up_seconds, 0)


FOREVER = Patience(give_up_seconds=None)


class Attempts:
    """The tries of one thing."""

    def __init__(self, patience: Patience, clock: Callable[[], float] = time.monotonic) -> None:
        self._patience = patience
        self._clock = clock
        self.succeeded()

    def succeeded(self) -> None:
        """It went well: the next failure is a first one."""
        self._delay = self._patience.first_seconds
        self._began_at = self._clock()

    def delay_after(self, failure: StreamError) -> float:
        """How long to wait before the next try. Raises the failure when it is time to give up."""
        # Many clients that failed together must not come back together.
        delay = self._delay * random.uniform(0.5, 1.0)
        self._delay = min(self._delay * 2, self._patience.longest_seconds)
        if failure.retry_after is not None:
            delay += failure.retry_after
        give_up = self._patience.give_up_seconds
        if give_up is not None and self._clock() - self._began_at + delay > give_up:
            raise failure
        return delay


def perform(request: Request, patience: Patience) -> Steps[Answer]:
    """The answer to a request, which is sent again as long as that is worth it and safe."""
    attempts = Attempts(patience)
    while True:
        try:
            return (yield from call(request))
        except Retryable as failure:
            delay = attempts.delay_after(failure)
        except OutcomeUnknown as failure:
            if not request.repeatable:
                raise
            delay = attempts.delay_after(failure)
        yield from sleep(delay)
