"""A log line about something that takes a while: at once when it changes, otherwise now and then."""

import logging
import time

REPEAT_SECONDS = 5.0


class Notice:
    """What was said last, and when."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._said: tuple[object, ...] = ()
        self._said_at = 0.0

    def say(self, message: str, *values: object) -> None:
        """Log this, unless it was said just before."""
        now, said = time.monotonic(), (message, *map(str, values))
        if said != self._said or now - self._said_at >= REPEAT_SECONDS:
            self._said, self._said_at = said, now
            self._logger.info(message, *values)
