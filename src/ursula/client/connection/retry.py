"""How often and for how long a request is retried."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from ..checks import check_number
from ..errors import OutcomeUnknown, Retryable, StreamError
from .steps import Answer, Request, Steps, call, sleep


@dataclass(frozen=True)
class Patience:
    """Retry delays, which double from the first to the longest, and when to give up (None: never)."""

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
    """Consecutive attempts at one operation: how long to wait after each failure, and when to give up."""

    def __init__(self, patience: Patience, clock: Callable[[], float] = time.monotonic) -> None:
        self._patience = patience
        self._clock = clock
        self.succeeded()

    def succeeded(self) -> None:
        """Reset after a success: the next failure counts as the first."""
        self._delay = self._patience.first_seconds
        self._began_at = self._clock()

    def delay_after(self, failure: StreamError) -> float:
        """How long to wait before the next attempt. Raises the failure when it is time to give up."""
        # Jitter, because clients that failed together must not all retry together.
        delay = self._delay * random.uniform(0.5, 1.0)
        self._delay = min(self._delay * 2, self._patience.longest_seconds)
        if failure.retry_after is not None:
            delay += failure.retry_after
        give_up = self._patience.give_up_seconds
        if give_up is not None and self._clock() - self._began_at + delay > give_up:
            raise failure
        return delay


def perform(
    request: Request, patience: Patience, send: Callable[[Request], Steps[Answer]] = call
) -> Steps[Answer]:
    """The response to a request, which is retried while that is safe and patience lasts."""
    attempts = Attempts(patience)
    while True:
        try:
            return (yield from send(request))
        except Retryable as failure:
            delay = attempts.delay_after(failure)
        except OutcomeUnknown as failure:
            if not request.repeatable:
                raise
            delay = attempts.delay_after(failure)
        yield from sleep(delay)
