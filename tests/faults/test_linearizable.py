"""The checker accepts every history that a correct server could have, and notices every broken rule.

`URSULA_FAULT_ROUNDS` says how many histories are tried.
"""

import random
from dataclasses import replace

import pytest
from tests.faults.history import (
    Append,
    Appended,
    Content,
    Create,
    Created,
    Head,
    Operation,
    OutcomeUnknown,
    Read,
    Refused,
    Tail,
    Unavailable,
)
from tests.faults.linearizable import NotLinearizable, Search, check, is_answered, until
from tests.faults.rounds import ROUNDS
from tests.faults.simulated_stream import RULES, Profile, Simulation
from tests.faults.stream_spec import Messages, State, shows, take

PROFILES = {
    "as usual": Profile(),
    "no end": Profile(clients=10, producers=4, unknown=0.3, rest=0.1, ends=0, bytes_max=2),
    "many ends": Profile(calls=80, unknown=0.2, ends=0.08),
    "many producers": Profile(clients=4, producers=3, calls=60, unknown=0.3, rest=0.1, ends=0.1),
}
LONG = Profile(clients=20, producers=5, calls=3000, rest=0.1, ends=0)


@pytest.mark.parametrize("profile", PROFILES)
def test_histories_of_a_correct_server_are_accepted(profile: str) -> None:
    """And the beginning of each, which may have reads that show different parts of the stream only."""
    for seed in range(30 * ROUNDS):
        history = Simulation(seed, PROFILES[profile]).run()
        assert Search(history).succeeds(), f"seed {seed}"
        time = random.Random(seed).choice(history).responded
        assert Search(until(history, time)).succeeds(), f"seed {seed}, until {time}"


@pytest.mark.parametrize("unknown", [0.02, 0.15])
def test_a_long_history_of_many_clients_takes_few_steps(unknown: float) -> None:
    """About one step for every append: the time grows with the length of the history, not faster."""
    search = Search(Simulation(1, replace(LONG, unknown=unknown)).run())
    assert search.succeeds()
    assert search.steps_taken < LONG.calls


def test_a_long_history_with_many_incarnations_is_accepted() -> None:
    profile = Profile(clients=20, producers=5, calls=3000, rest=1, ends=0.01)
    for seed in (1, 2):
        check(Simulation(seed, profile).run())


@pytest.mark.parametrize("rule", RULES)
def test_a_broken_rule_is_noticed(rule: str) -> None:
    """In every history in which there was an occasion to break it."""
    ends = 0.04 if "closed" in rule or "deleted" in rule else 0
    count = 0
    for seed in range(10 * ROUNDS):
        simulation = Simulation(seed, Profile(calls=150, unknown=0.03, ends=ends), broken=rule)
        history = simulation.run()
        if simulation.server.has_broken:
            count += 1
            assert not Search(history).succeeds(), f"seed {seed}"
    assert count >= 5 * ROUNDS


@pytest.mark.parametrize("rule", RULES[:7])
def test_a_broken_rule_is_noticed_in_a_long_history(rule: str) -> None:
    history = Simulation(1, LONG, broken=rule).run()
    assert not Search(history).succeeds()


def test_the_checker_agrees_with_a_search_of_all_orders() -> None:
    """On short histories of a correct server, most of them with other answers here and there."""
    choose = random.Random(1)
    accepted = 0
    count = 200 * ROUNDS
    for number in range(count):
        profile = Profile(
            clients=choose.choice((2, 3, 4)),
            producers=choose.choice((0, 1, 2)),
            calls=choose.choice((8, 12)),
            unknown=choose.choice((0, 0.2, 0.5)),
            rest=choose.choice((0.1, 1)),
            ends=choose.choice((0, 0.1, 0.3)),
            bytes_max=choose.choice((1, 2, 10)),
        )
        history = Simulation(number, profile).run()
        if choose.random() < 0.7:
            history = with_another_answer(history, choose)
        expected = is_linearizable(history)
        accepted += expected
        # An append that nobody has seen may count twice: see the checker.
        if expected or not has_unseen(history):
            assert Search(history).succeeds() == expected, f"number {number}"
    assert count // 4 < accepted < 3 * count // 4


def test_the_shortest_prefix_that_cannot_be_explained_is_shown() -> None:
    first, second = Append(b"<first>"), Append(b"<second>")
    history = [
        Operation("a", 0, 1, Create(), Created(new=True)),
        Operation("a", 2, 3, first, Appended(7)),
        Operation("b", 2, 5, second, Appended(15)),
        Operation("c", 4, 6, Read(), Content((b"<second>",))),
        Operation("a", 7, 8, Head(), Tail(15)),
        Operation("b", 9, 10, Append(b"<third>"), OutcomeUnknown()),
    ]
    with pytest.raises(NotLinearizable) as caught:
        check(history)
    assert caught.value.prefix == history[:4]
    text = str(caught.value)
    assert text.startswith(f"No order of the operations explains this answer:\n    {history[3]}\n")
    assert f"Appends that it does not show, or should not:\n    {history[1]}\n" in text
    assert "<third>" not in text


def test_the_explanation_names_the_append_that_was_to_have_no_effect() -> None:
    history = [
        Operation("a", 0, 1, Create(), Created(new=True)),
        Operation("a", 2, 3, Append(b"<not there>"), Unavailable()),
        Operation("b", 4, 5, Read(), Content((b"<not there>",))),
    ]
    with pytest.raises(NotLinearizable, match=r"a \[2.0+, 3.0+\] Append.*Unavailable"):
        check(history)


def with_another_answer(history: list[Operation], choose: random.Random) -> list[Operation]:
    """The history with one answer replaced by another of its kind."""
    place = choose.randrange(len(history))
    operation = history[place]
    result = operation.result
    shift = choose.choice((-10, -7, 0, 7, 10))
    match result:
        case Tail():
            result = Tail(result.offset + shift, choose.random() < 0.3)
        case Content():
            result = Content(result.messages[::-1][choose.choice((0, 1)) :], result.closed)
        case Appended():
            result = Appended(result.next_offset + shift, result.duplicate != (choose.random() < 0.3))
        case Created():
            result = Created(not result.new)
        case OutcomeUnknown():
            result = Unavailable()
        case Refused():
            result = Refused("stream_not_found")
    return [*history[:place], replace(operation, result=result), *history[place + 1 :]]


def has_unseen(history: list[Operation]) -> bool:
    """Whether an append of unknown outcome was shown by no read."""
    shown = {message for op in history if isinstance(op.result, Content) for message in op.result.messages}
    return any(
        isinstance(op.call, Append) and isinstance(op.result, OutcomeUnknown) and op.call.message not in shown
        for op in history
    )


def is_linearizable(history: list[Operation]) -> bool:
    """Wing and Gong's search, as simply as possible."""
    operations = [
        operation
        for operation in history
        if is_answered(operation)
        or (isinstance(operation.result, OutcomeUnknown) and not isinstance(operation.call, Head | Read))
    ]
    everything = frozenset(range(len(operations)))
    answered = frozenset(number for number in everything if is_answered(operations[number]))
    visited: set[tuple[frozenset[int], State]] = set()
    empty = Messages()

    def search(done: frozenset[int], state: State) -> bool:
        if answered <= done:
            return True
        if (done, state) in visited:
            return False
        visited.add((done, state))
        first_response = min(operations[number].responded for number in answered - done)
        for number in everything - done:
            operation = operations[number]
            if operation.invoked > first_response:
                continue
            after = state
            if isinstance(operation.call, Read):
                fits = shows(state, operation.call, operation.result)
            else:
                after, answer = take(state, operation.call, empty)
                fits = answer == operation.result if number in answered else after != state
            if fits and search(done | {number}, after):
                return True
        return False

    return search(frozenset(), None)
