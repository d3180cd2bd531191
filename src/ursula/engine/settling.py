"""After a flush: what is stored is let go of, and what is idle is parked, in small steps."""

import asyncio

from ..model.changes import RowKind
from ..model.state import State
from .slices import Turn

DROPPED_AT_ONCE = 4096
"""So many messages are let go of before others have their turn."""


class Settling:
    """Lets go of what one group has in memory and in the store too."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Begin, unless that is under way: then it goes on with what is new."""
        if self.task is None or self.task.done():
            self.task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        """Leave the rest as it is."""
        if self.task is not None:
            self.task.cancel()

    async def _run(self) -> None:
        state, turn = self._state, Turn()
        while state.settled or state.settled_parts:
            settled, state.settled = state.settled, []
            parts, state.settled_parts = state.settled_parts, []
            for bucket, part in parts:
                found = state.buckets.get(bucket)
                if found is not None:
                    found.forget_part(part)
                else:
                    state.gauge.count -= part.held_bytes
                while not part.drain(DROPPED_AT_ONCE):
                    await turn.end()
            del parts
            while settled:
                keys = list(settled.pop())  # and one by one, since to free very many at once takes long
                while keys:
                    kind, bucket, name = keys.pop()
                    if kind in (RowKind.STREAM, RowKind.GRAVE):
                        while not self._let_go(kind, bucket, name):
                            await turn.end()
                        await turn.end()
        await self._park(turn)

    def _let_go(self, kind: int, bucket: str, name: str) -> bool:
        """Let go of what is stored of a stream, or of some of it; whether that was all."""
        state = self._state
        stored = state.stored_to
        if kind == RowKind.GRAVE:
            state.graves.drop_stored(bucket, name, stored)
            return True
        found = state.buckets.get(bucket)
        stream = found.streams.get(name) if found is not None else None
        if found is not None and stream is not None:
            if not stream.drop_stored(stored, DROPPED_AT_ONCE):
                return False
            if stream.changed <= stored:
                found.park(stream)
        return True

    async def _park(self, turn: Turn) -> None:
        """Park streams again that were asked for."""
        state = self._state
        for stream, bucket in list(state.unparked.items()):
            found = state.buckets.get(bucket)
            if found is not None and stream.changed <= state.stored.flushed:
                found.park(stream)
            state.unparked.pop(stream, None)
            await turn.end()
