"""The keys of a cluster in etcd. Those of the log are made here, the others in `cluster`.

    {prefix}generation             the generation of the cluster's data
    {prefix}store                  which store the log goes with
    {prefix}versions/{node}        the entry version that a node reads; it has no lease
    {prefix}{generation}/          the log of a generation; nothing of another one counts in it:
      proposers/{proposer}         its version is how many transactions this proposer has written
      g{k}/e/{proposer}/{number}   an entry of group k
      g{k}/head                    its version is how many entries the group has had
      g{k}/needs/{node}            the position after which a node still needs the entries
      g{k}/trimmed                 the position up to which entries may be missing
      nodes/{node}                 the report of a node, with its lease
      keeper                       which node is the keeper, with its lease

A position is written with 20 digits, so that etcd, which compares bytes, compares positions. So is the number
of a transaction, so that the entries of a proposer up to a number are a range of keys.
"""

GENERATION = "generation"
DIGITS = 20


class GroupKeys:
    """The keys of one group."""

    def __init__(self, prefix: str, group: int) -> None:
        root = f"{prefix}g{group}/"
        self.entries = f"{root}e/".encode()
        self.entries_end = f"{root}e0".encode()
        self.head = f"{root}head".encode()
        self.head_end = f"{root}head\0".encode()
        """`entries` to `head_end` is the range that has the entries and the head, and nothing else."""
        self.needs = f"{root}needs/".encode()
        self.needs_end = f"{root}needs0".encode()
        self.trimmed = f"{root}trimmed".encode()

    def entry(self, proposer: str, number: int) -> bytes:
        """The entry of a transaction."""
        return self.entries + f"{proposer}/{number:0{DIGITS}d}".encode()

    def need(self, node: str) -> bytes:
        """What a node still needs."""
        return self.needs + node.encode()


class LogKeys:
    """The keys of the log of a generation."""

    def __init__(self, prefix: str, generation: int) -> None:
        self.prefix = f"{prefix}{generation}/"
        self.generation = f"{prefix}{GENERATION}".encode()

    def proposer(self, proposer: str) -> bytes:
        """The key that counts the transactions of a proposer."""
        return f"{self.prefix}proposers/{proposer}".encode()

    def group(self, number: int) -> GroupKeys:
        """The keys of a group."""
        return GroupKeys(self.prefix, number)


def encode_position(position: int) -> bytes:
    """A position as a value."""
    return b"%020d" % position


def proposer_of(key: bytes) -> bytes:
    """The part of an entry's key up to its number."""
    return key[:-DIGITS]
