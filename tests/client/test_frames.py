"""Length-prefixed framing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ursula.client import FrameReader, frame


@given(st.lists(st.binary(max_size=40)), st.lists(st.integers(0, 12)))
def test_payloads_come_back_whatever_the_cuts(payloads: list[bytes], cuts: list[int]) -> None:
    rest = b"".join(map(frame, payloads))
    reader, found = FrameReader(), []
    for cut in cuts:
        found += reader.feed(rest[:cut])
        rest = rest[cut:]
    found += reader.feed(rest)
    assert found == payloads
    assert reader.pending_bytes == 0


@given(st.binary(min_size=1, max_size=40), st.data())
def test_a_frame_that_was_cut_off_is_noticed(payload: bytes, data: st.DataObject) -> None:
    framed = frame(payload)
    cut = data.draw(st.integers(1, len(framed) - 1))
    reader = FrameReader()
    assert reader.feed(framed[:cut]) == []
    assert reader.pending_bytes == cut
    assert reader.feed(framed[cut:]) == [payload]


def test_a_frame_is_a_length_of_four_bytes_and_a_payload() -> None:
    assert frame(b"abc") == b"\x00\x00\x00\x03abc"
    assert frame(b"") == b"\x00\x00\x00\x00"


def test_a_length_that_cannot_be_right_is_refused() -> None:
    reader = FrameReader(payload_bytes_max=1000)
    with pytest.raises(ValueError, match="exceeds the limit of 1000"):
        reader.feed(b"HTTP/1.1 200 OK")
