"""The keeper's role: the work that one node does for all nodes that share a log and a store.

The keeper flushes, merges, collects garbage and ends streams whose deadline has passed. A single node always
holds the role; in a cluster it moves. Two keepers at once cannot harm each other: every step counts only once
its command is applied, and `apply` ignores a flush or a merge that another one has overtaken. They only do
some work twice.
"""


class KeeperRole:
    """Whether this node is the keeper. Whoever decides that sets `is_held`; the workers look at it."""

    def __init__(self, is_held: bool = True) -> None:
        self.is_held = is_held
