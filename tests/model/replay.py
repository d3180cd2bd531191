"""Applies a log and gives back all that came of it. As a program: log on stdin, result on stdout."""

import sys
from collections.abc import Iterable

import msgspec

from ursula.model.codec.entry import decode
from ursula.model.dump import dump
from ursula.model.outcomes import AnyOutcome
from ursula.model.state import State

Entry = tuple[int, bytes]


def replay(log: Iterable[Entry], state: State) -> list[AnyOutcome]:
    """Apply the log to the state; returns every outcome."""
    outcomes = []
    for position, payload in log:
        batch = decode(payload)
        state.begin(position, batch.at)
        outcomes += [state.apply(command, index) for index, command in enumerate(batch.commands)]
    return outcomes


def result_of(log: Iterable[Entry]) -> bytes:
    """The whole state and all outcomes after applying the log from nothing."""
    state = State(0)
    outcomes = replay(log, state)
    told = [(type(outcome).__name__, outcome) for outcome in outcomes]
    return msgspec.msgpack.encode((dump(state), told))


if __name__ == "__main__":
    logs = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=list[list[Entry]])
    sys.stdout.buffer.write(msgspec.msgpack.encode([result_of(log) for log in logs]))
