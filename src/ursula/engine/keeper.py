"""The keeper's role: the work that one node does for all nodes that share a log and a store.

The keeper flushes, merges, collects garbage and ends streams whose deadline has passed. A single node always
holds the role; in a cluster it moves. Two keepers at once cannot harm each other: every step counts only once
its command is applied, and `apply` ignores a flush or a merge that another one has overtaken. They only do
some work twice.
"""


class KeeperRole:
    """The role of a node without others: it is always the keeper. In a cluster, a subclass decides."""

    @property
    def is_held(self) -> bool:
        """Whether this node is the keeper. The workers look at it before each step."""
        return True

    def give_up(self) -> None:
        """Leave the role to others for as long as this process runs: what it would flush may be wrong.

        A node without others has nobody to contradict it.
        """
