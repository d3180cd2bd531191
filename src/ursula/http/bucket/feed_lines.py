"""The rows of a feed as JSON lines. A recent entry is encoded once for all of its followers."""

import base64
from collections import OrderedDict
from typing import NamedTuple

import msgspec

from ...model.outcomes import FeedEntry, FeedPage, FeedRow
from ...model.text.media_type import JSON, is_text
from ...times import format_time

RECENT_ENTRIES = 16
NAMES_MAX = 10_000

_WITHOUT_LINE_ENDS = bytes.maketrans(b"\r\n", b"  ")
_encode = msgspec.json.Encoder().encode


class _Names(NamedTuple):
    """The fields that all rows of a stream have in common, encoded once."""

    encoded: bytes
    media_type: str


class FeedLines:
    """Encodes entries, and keeps the lines of the most recent ones.

    Followers at different positions, by long-poll or SSE, read pages that begin and end differently but share
    their entries. So this memo is by entry, one level below that of `PageEvents`, which is by page.
    """

    def __init__(self) -> None:
        self._names: dict[str, _Names] = {}
        self._recent: OrderedDict[tuple[str, int], list[bytes]] = OrderedDict()

    def page(self, page: FeedPage) -> bytes:
        """All rows of a page, one line each."""
        return _joined([self._lines(entry) for entry in page.entries])

    def recent_page(self, bucket: str, page: FeedPage) -> bytes:
        """The same for a page of recent entries."""
        return _joined([self.recent(bucket, entry) for entry in page.entries])

    def recent(self, bucket: str, entry: FeedEntry) -> list[bytes]:
        """The lines of a recent entry, which other followers will need too."""
        key = (bucket, entry.position)
        lines = self._recent.get(key)
        if lines is None:
            lines = self._recent[key] = self._lines(entry)
            if len(self._recent) > RECENT_ENTRIES:
                self._recent.popitem(last=False)
        return lines

    def _lines(self, entry: FeedEntry) -> list[bytes]:
        head = b'{"position":"%020d","at":"%b","index":' % (
            entry.position,
            format_time(entry.at, "microseconds").encode(),
        )
        return [self._line(head, row) for row in entry.rows]

    def _line(self, head: bytes, row: FeedRow) -> bytes:
        names = self._names.get(row.incarnation) or self._add_names(row)
        line = b'%b%d,"kind":"%b","offset":"%020d","next_offset":"%020d"%b' % (
            head,
            row.index,
            row.kind.encode(),
            row.offset,
            row.next_offset,
            names.encoded,
        )
        if row.record is not None:
            line += b',"record":%d' % row.record
        if row.producer is not None:
            producer = {"id": row.producer.id, "epoch": row.producer.epoch, "seq": row.producer.seq}
            line += b',"producer":' + _encode(producer)
        if row.event is not None:
            line += b',"event":' + row.event
        if row.payload is None:
            return line + b"}"
        return line + _value(row.payload, names.media_type)

    def _add_names(self, row: FeedRow) -> _Names:
        fields = {"stream": row.stream, "incarnation": row.incarnation, "content_type": row.content_type}
        if len(self._names) >= NAMES_MAX:
            self._names.clear()
        names = self._names[row.incarnation] = _Names(b"," + _encode(fields)[1:-1], row.media_type)
        return names


def _joined(entries: list[list[bytes]]) -> bytes:
    lines = [line for entry in entries for line in entry]
    lines.append(b"")
    return b"\n".join(lines)


def _value(payload: bytes, media_type: str) -> bytes:
    """The field with the message, and the end of the line."""
    if media_type == JSON:
        return b',"value":%b}' % payload.translate(_WITHOUT_LINE_ENDS)
    if is_text(media_type):
        try:
            return b',"value":%b}' % _encode(payload.decode())
        except UnicodeDecodeError:
            pass
    return b',"value_base64":"%b"}' % base64.b64encode(payload)
