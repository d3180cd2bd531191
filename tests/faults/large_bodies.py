"""Writers of large bodies, among small ones: in whole and once, or not at all."""

from random import Random

from tests.faults.writers import Appender, Crowd

EXTRA_BYTES = (0, 0, 900_000, 1_200_000, 2_500_000)


class LargeAppender(Appender):
    """Appends numbered messages, some of which are too large for memory and log."""

    def messages(self, parts: int) -> list[bytes]:
        """The messages of the next request."""
        extra = b"x" * (self.random.choice(EXTRA_BYTES) // parts)
        end = b'"}' if self.is_json else b">"
        return [message.removesuffix(end) + extra + end for message in super().messages(parts)]


class LargeCrowd(Crowd):
    """All writers of a test, over two streams."""

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self.lifecycles, self.streams = [], {}
        for kind in ("binary", "json"):
            path = f"/v1/stream/{kind}"
            self.streams[path] = [
                LargeAppender(f"{kind}-{index}", self._fork(), path, index == 0, kind == "json")
                for index in range(2)
            ]
