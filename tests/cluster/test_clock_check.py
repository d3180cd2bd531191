"""Which clocks are told to be ahead: never one that is not, however late anything arrives."""

import random
from collections.abc import Callable

import pytest

from ursula.cluster.clock_check import AHEAD_SECONDS_MAX, DOUBTED_EXCHANGES, ClockCheck
from ursula.engine.status.cluster_status import NodeReport

SECOND = 1_000_000


class SimulatedNode:
    """A node with a clock that is wrong by some seconds."""

    def __init__(self, number: int, wrong_seconds: float, now: Callable[[], float]) -> None:
        self.number = number
        self.wrong_seconds = wrong_seconds
        self.check = ClockCheck(number, lambda: int((now() + self.wrong_seconds) * SECOND), now)

    def report(self) -> NodeReport:
        at = self.check.begin_report()
        heard = dict(self.check.heard)
        return NodeReport(self.number, "", "", None, 1, [], at, [], heard=heard)


class Simulation:
    """Nodes that exchange reports. Each exchange has three steps, and a node may be frozen between them."""

    def __init__(self, wrong_seconds: list[float], freezes: float = 0.0) -> None:
        self.time = 1000.0
        self.freezes = freezes
        self.published: dict[int, NodeReport] = {}
        self.nodes = [SimulatedNode(n, wrong, lambda: self.time) for n, wrong in enumerate(wrong_seconds)]
        self.events: list[tuple[float, float, Callable[[], None]]] = []
        for node in self.nodes:
            self._later(random.random(), lambda node=node: self._compose(node))  # type: ignore[misc]

    def _later(self, seconds: float, step: Callable[[], None]) -> None:
        if random.random() < self.freezes:
            seconds += random.choice((0.5, 3, 8, 40))
        self.events.append((self.time + seconds, random.random(), step))

    def _compose(self, node: SimulatedNode) -> None:
        report = node.report()
        self._later(0.005, lambda: self._commit(node, report))

    def _commit(self, node: SimulatedNode, report: NodeReport) -> None:
        self.published[node.number] = report
        seen = dict(self.published)
        self._later(0.005, lambda: self._read(node, seen))

    def _read(self, node: SimulatedNode, seen: dict[int, NodeReport]) -> None:
        node.check.note(seen)
        self._later(random.uniform(0.7, 1.0), lambda: self._compose(node))

    def run(self, seconds: float, check: Callable[[], None] = lambda: None) -> None:
        until = self.time + seconds
        while self.time < until:
            self.events.sort()
            self.time, _, step = self.events.pop(0)
            step()
            check()

    def accused(self) -> list[int]:
        return [node.number for node in self.nodes if node.check.problem is not None]


@pytest.mark.parametrize(
    ("wrong_seconds", "accused"),
    [
        ([0, 0, 0], []),
        ([1, 0, 0], []),
        ([1.9, 0, 0], []),
        ([3, 0, 0], [0]),
        ([60, 0, 0], [0]),
        ([-60, 0, 0], []),
        ([60, 120, 0], [1]),
        ([-60, 0.1, -60], [1]),
        ([3, 0], [0]),
        ([-3, 0], [1]),
        ([60], []),
        ([5, 5, 0, 0], [0, 1]),
        ([5, 5, 5, 0, 0], []),
        ([5, 5, 0, 0, 0], [0, 1]),
    ],
)
def test_who_is_ahead_of_the_median_is_told_so(wrong_seconds: list[float], accused: list[int]) -> None:
    simulation = Simulation(wrong_seconds)
    simulation.run(15)
    assert simulation.accused() == accused


def test_nobody_is_accused_wrongly_however_long_nodes_are_frozen() -> None:
    accused = 0
    for seed in range(40):
        random.seed(seed)
        count = random.choice((2, 3, 4, 5))
        wrong = [random.choice((0, 0.5, 1, 1.9, 2.1, 3, -3, 60, -60)) for _ in range(count)]
        simulation = Simulation(wrong, freezes=0.1)
        simulation.run(45)  # until all know of each other
        clocks = sorted(wrong)
        median = clocks[(count - 1) // 2]
        ahead = {node for node in range(count) if wrong[node] - median > AHEAD_SECONDS_MAX}

        def check(simulation: Simulation = simulation, ahead: set[int] = ahead, seed: int = seed) -> None:
            assert set(simulation.accused()) <= ahead, seed

        simulation.run(150, check)
        accused += len(simulation.accused())
    assert accused > 10


def test_a_clock_that_was_set_right_is_trusted_again() -> None:
    simulation = Simulation([60, 0, 0])
    simulation.run(10)
    assert simulation.accused() == [0]
    simulation.nodes[0].wrong_seconds = 0
    simulation.run(2)
    assert simulation.accused() == []
    simulation.nodes[1].wrong_seconds = simulation.nodes[2].wrong_seconds = -60
    simulation.run(10)
    assert simulation.accused() == [0]
    simulation.nodes[1].wrong_seconds = 0
    simulation.run(3)
    assert simulation.accused() == []


def test_a_clock_that_is_right_is_not_even_doubted() -> None:
    simulation = Simulation([0.3, 0, 0])
    simulation.run(3)
    assert not simulation.nodes[0].check.is_doubted
    late = Simulation([60, 0, 0]).nodes[0].check
    assert late.is_doubted


@pytest.mark.parametrize("seconds", [3, 60])
def test_a_clock_that_jumps_ahead_is_doubted_at_once_and_until_it_is_proven_wrong(seconds: float) -> None:
    simulation = Simulation([0, 0, 0])
    simulation.run(10)
    check = simulation.nodes[0].check
    check.look()
    assert not check.is_doubted
    simulation.nodes[0].wrong_seconds = seconds
    check.look()
    assert check.is_doubted

    def is_never_trusted() -> None:
        assert check.is_doubted or check.problem is not None

    simulation.run(30, is_never_trusted)
    assert not check.is_doubted
    assert simulation.accused() == [0]


def test_a_clock_that_jumps_ahead_with_all_others_is_soon_trusted() -> None:
    simulation = Simulation([0, 0, 0])
    simulation.run(10)
    for node in simulation.nodes:
        node.wrong_seconds = 60
        node.check.look()
    assert all(node.check.is_doubted for node in simulation.nodes)
    simulation.run(3)
    assert not any(node.check.is_doubted for node in simulation.nodes)
    assert simulation.accused() == []


@pytest.mark.parametrize("seconds", [1.9, -1, -60])
def test_a_clock_that_is_set_back_or_a_little_ahead_is_not_doubted(seconds: float) -> None:
    simulation = Simulation([0, 0, 0])
    simulation.run(10)
    simulation.nodes[0].wrong_seconds = seconds
    simulation.nodes[0].check.look()
    assert not simulation.nodes[0].check.is_doubted


def test_a_wrong_clock_that_is_not_set_back_far_enough_is_never_trusted_meanwhile() -> None:
    simulation = Simulation([60, 0, 0])
    simulation.run(10)
    assert simulation.accused() == [0]
    simulation.nodes[0].wrong_seconds = 30
    check = simulation.nodes[0].check
    check.look()

    def is_never_trusted() -> None:
        assert check.is_doubted or check.problem is not None

    simulation.run(10, is_never_trusted)
    assert simulation.accused() == [0]


def test_a_doubt_ends_although_the_others_are_silent() -> None:
    simulation = Simulation([0, 0, 0])
    simulation.run(10)
    node, silent = simulation.nodes[0], simulation.published
    node.wrong_seconds = 60
    node.check.look()
    for _ in range(DOUBTED_EXCHANGES):
        assert node.check.is_doubted
        node.check.note(silent)
    assert not node.check.is_doubted
