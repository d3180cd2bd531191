"""A log line about a long wait: logged at once when it changes, otherwise every 5 s."""

import logging
import time

REPEAT_SECONDS = 5.0


class Notice:
    """The last message, and when it was logged."""

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
