"""Whether a segment is what was written: for an executor."""

from typing import NamedTuple

from ..cold.segment.report import SegmentReport, examine
from .store import StoreFiles


class Expected(NamedTuple):
    """What the state says of a segment."""

    key: str
    digest: str
    footer_crc: int


def examine_stored(store: StoreFiles, expected: Expected) -> SegmentReport:
    """Read all of a segment and check everything that can be checked; damage is told, never raised."""
    try:
        data = store.read(expected.key)
    except FileNotFoundError:
        return SegmentReport(expected.key, 0, 0, 0, 0, 0, {}, 0, [], [], ["it is missing"])
    return examine(expected.key, data, expected.digest, expected.footer_crc)
