"""When a node leaves the keeper's role to others: if it writes nothing, or if its flushes fail for long."""

from ursula.cluster.keeper_check import FAILING_SECONDS_MAX, REST_SECONDS, KeeperCheck

AHEAD, FULL = "the clock is ahead", "the disk is full"


class Checked:
    """A check, and the time that passes."""

    def __init__(self) -> None:
        self._now = 1000.0
        self._check = KeeperCheck(lambda: self._now)

    def after(self, seconds: float, *, write: str | None = None, flush: str | None = None) -> str | None:
        """What is wrong some time later, while another node could take the role."""
        self._now += seconds
        return self._check.find_problem(write, flush, others=True)

    def alone(self, seconds: float, flush: str | None = None) -> str | None:
        """What is wrong some time later, while no other node could take it."""
        self._now += seconds
        return self._check.find_problem(None, flush, others=False)


def test_a_node_that_writes_nothing_leaves_the_role_until_it_writes_again() -> None:
    node = Checked()
    assert node.after(1, write=AHEAD) == AHEAD
    assert node.alone(1) is None
    assert node.after(1, write=AHEAD) == AHEAD
    assert node.after(1) is None


def test_flushes_that_fail_for_a_moment_move_nothing() -> None:
    node = Checked()
    for _ in range(3):
        assert node.after(1, flush=FULL) is None
        assert node.after(FAILING_SECONDS_MAX - 1, flush=FULL) is None
        assert node.after(1) is None


def test_a_keeper_whose_flushes_fail_leaves_the_role_for_a_while() -> None:
    node = Checked()
    assert node.after(0, flush=FULL) is None
    assert node.after(FAILING_SECONDS_MAX, flush=FULL) == FULL
    assert node.after(REST_SECONDS - 1) == FULL
    assert node.after(1) is None
    assert node.after(1, flush=FULL) is None, "it has the role again, and is given as long as before"
    assert node.after(FAILING_SECONDS_MAX, flush=FULL) == FULL


def test_the_role_stays_with_a_node_that_nobody_could_replace() -> None:
    node = Checked()
    for _ in range(2):
        assert node.alone(1, FULL) is None
        assert node.alone(10 * FAILING_SECONDS_MAX, FULL) is None
        assert node.after(1) is None, "it flushes again"
    assert node.alone(1, FULL) is None
    assert node.alone(10 * FAILING_SECONDS_MAX, FULL) is None
    assert node.after(1, flush=FULL) == FULL, "another node is there now"
    assert node.alone(1) is None, "the other one cannot either"
