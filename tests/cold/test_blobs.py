"""Blobs on the disk: where they lie, whatever their bucket is called."""

from pathlib import Path

import pytest

from ursula.cold.blobs import Blobs


def store(blobs: Blobs, bucket: str, incarnation: str, data: bytes = b"data") -> Path:
    key = blobs.new_key(bucket, incarnation)
    writer = blobs.create()
    writer.write(data)
    blobs.keep(writer, key)
    return blobs.path(key)


@pytest.mark.parametrize("bucket", ["bucket", ".", "a/b", "%2E", "é" * 61, "x" * 120, " ", "~", "UPPER"])
def test_any_bucket_has_a_folder_of_its_own(tmp_path: Path, bucket: str) -> None:
    blobs = Blobs(tmp_path / "cold")
    path = store(blobs, bucket, "0-1-0")
    assert len(path.resolve().relative_to((tmp_path / "cold" / "blobs").resolve()).parts) == 3
    (key,) = blobs.keys()
    assert blobs.path(key) == path
    blobs.remove(key)
    assert list((tmp_path / "cold" / "blobs").iterdir()) == []
    blobs.remove(key)
