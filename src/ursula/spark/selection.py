"""Which rows are wanted: of some streams, positions and times. Row groups without any are not read."""

import re
from collections.abc import Iterator
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from ..cold.segment.footer import Footer
from .conditions import Condition, bounds_of
from .options import ReadOptions

_WILD = re.compile(r"[*?\[]")


def conditions_of(options: ReadOptions) -> Iterator[Condition]:
    """What the options ask of the rows, but for positions and for what `glob_pattern` says exactly."""
    yield Condition("bucket", "=", options.bucket)
    if not options.include_events:
        yield Condition("kind", "=", "append")
    if options.starting_ms is not None:
        yield Condition("appended_at", ">=", options.starting_ms * 1000)
    if options.ending_ms is not None:
        yield Condition("appended_at", "<", options.ending_ms * 1000)
    if options.streams is not None:
        yield Condition("stream", "in", options.streams)
    if options.stream_prefix is not None:
        yield Condition("stream", "starts", options.stream_prefix)
    if options.stream_glob is not None:
        yield Condition("stream", "starts", _WILD.split(options.stream_glob, maxsplit=1)[0])


def glob_pattern(glob: str) -> str:
    """A regular expression that a whole name matches; Python and Java read it alike.

    Groups that are not tried again (`(?>`) keep the time in bounds however many stars there are.
    """
    first, *others = _between_stars(glob)
    if not others:
        return f"(?s:{first})"
    middle = "".join(f"(?>.*?{part})" for part in others[:-1] if part)
    return f"(?s:{first}{middle}.*{others[-1]})"


class Selection:
    """The rows of a bucket that the options ask for."""

    def __init__(self, options: ReadOptions) -> None:
        self._conditions = list(conditions_of(options))
        glob = options.stream_glob
        self._match = None if glob is None else re.compile(glob_pattern(glob)).fullmatch

    def row_groups(self, footer: Footer) -> list[int]:
        """The row groups of a segment that may have rows that are wanted."""
        metadata = footer.metadata
        return [
            number for number in range(metadata.num_row_groups) if self._may_have(metadata.row_group(number))
        ]

    def rows(self, batch: pa.RecordBatch, after: int, until: int) -> pa.RecordBatch:
        """The rows of a batch that are wanted; it has the columns that this takes."""
        masks = [pc.greater(batch["position"], after), pc.less_equal(batch["position"], until)]
        masks += [condition.mask(batch[condition.column]) for condition in self._conditions]
        if self._match is not None:
            masks.append(self._matching(batch["stream"]))
        mask = reduce(pc.and_, masks)
        return batch if mask.true_count == batch.num_rows else batch.filter(mask)

    def columns(self) -> set[str]:
        """What `rows` takes."""
        return {"position", "stream", *(condition.column for condition in self._conditions)}

    def _may_have(self, row_group: object) -> bool:
        bounds = bounds_of(row_group)
        return all(
            condition.may_pass(bounds[condition.column])
            for condition in self._conditions
            if condition.column in bounds
        )

    def _matching(self, streams: pa.Array) -> pa.Array:
        encoded = streams.dictionary_encode()
        wanted = pa.array([self._is_match(name) for name in encoded.dictionary.to_pylist()], pa.bool_())
        return wanted.take(encoded.indices)

    def _is_match(self, name: str | None) -> bool:
        return name is not None and self._match is not None and self._match(name) is not None


def _between_stars(glob: str) -> list[str]:
    """The parts of a glob that its stars divide, as regular expressions."""
    parts = [""]
    place = 0
    while place < len(glob):
        end = _set_end(glob, place)
        if end is not None:
            parts[-1] += _set_pattern(glob[place + 1 : end])
            place = end
        elif glob[place] == "*":
            parts.append("")
        else:
            parts[-1] += "." if glob[place] == "?" else _literal(glob[place])
        place += 1
    return parts


def _set_end(glob: str, place: int) -> int | None:
    """Where the set that begins here ends; None if none begins, or it does not end."""
    if glob[place] != "[":
        return None
    begin = place + 2 if glob[place + 1 : place + 2] == "!" else place + 1
    end = glob.find("]", begin + 1)
    return end if end >= 0 else None


def _set_pattern(members: str) -> str:
    """What is between the brackets of a set, as a regular expression."""
    negated = members.startswith("!")
    members = members.removeprefix("!")
    parts = []
    place = 0
    while place < len(members):
        first, dash, last = members[place], members[place + 1 : place + 2], members[place + 2 : place + 3]
        if dash != "-" or not last:
            parts.append(_literal(first))
            place += 1
            continue
        if first <= last:
            parts.append(f"{_literal(first)}-{_literal(last)}")
        place += 3
    if not parts:
        return "." if negated else "(?!)"
    return f"[{'^' if negated else ''}{''.join(parts)}]"


def _literal(character: str) -> str:
    return f"\\{character}" if character.isascii() and not character.isalnum() else character
