"""Manifests, generations and live lists: read back as they were written, or not at all."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ursula.cold.objects import keys
from ursula.cold.objects.fs import FsStore
from ursula.cold.objects.store import ObjectDamaged
from ursula.cold.state import manifest as manifests
from ursula.cold.state.manifest import (
    FoundManifest,
    Generation,
    LiveList,
    LiveSegment,
    Manifest,
    SegmentFacts,
    StateFacts,
)

pytestmark = pytest.mark.anyio

FIRST, LAST = (2 << 40) + 10, (2 << 40) + 783
SEGMENT = keys.segment_key(0, FIRST, LAST)
BASE, CHANGES = keys.state_key(0, FIRST), keys.state_key(0, LAST)
SOURCE = keys.manifest_key(0, (1 << 40) + 4)

MANIFEST = Manifest(
    1,
    "cluster",
    2,
    0,
    FIRST,
    LAST,
    1_700_000_000_000_000,
    SegmentFacts(FIRST, LAST, SEGMENT, 3, 100, 30, 20, 12345, "sha256:a"),
    [StateFacts(BASE, True, 5, 50, "sha256:b"), StateFacts(CHANGES, False, 1, 10, "sha256:c")],
    keys.manifest_key(0, FIRST),
)
GENERATION = Generation(1, "cluster", 2, 1, 1_700_000_000_000_000, SOURCE, {"0": (1 << 40) + 4})
LIVE = LiveList("cluster", 2, 0, LAST, [LiveSegment(SEGMENT, FIRST, LAST, 3, 100)])

DOCUMENTS = [
    (keys.manifest_key(0, LAST), MANIFEST),
    (keys.generation_key(2), GENERATION),
    (keys.live_key(0), LIVE),
]


async def read(root: Path, key: str) -> Any:
    """What is read back of a document by its key; ObjectDamaged if it is refused."""
    store = FsStore(root)
    try:
        if key.startswith("manifests/"):
            return await manifests.read_manifest(store, key)
        if key.startswith("live/"):
            return await manifests.read_live(store, 0)
        return (await manifests.read_generations(store))[-1]
    finally:
        await store.close()


def put(root: Path, key: str, data: bytes) -> None:
    path = root / key
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def without_checksum(document: msgspec.Struct) -> bytes:
    """A document as it was written before there were checksums."""
    return msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"


@pytest.mark.parametrize(("key", "document"), DOCUMENTS, ids=lambda one: str(one).partition("/")[0][:10])
def test_a_document_with_any_single_bit_flipped_is_refused_or_the_same(
    tmp_path: Path, key: str, document: msgspec.Struct
) -> None:
    data = manifests.encode(document)
    decode: Callable[..., msgspec.Struct] = manifests.decode
    assert decode(key, data, type(document)) == document
    for number in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[number // 8] ^= 1 << number % 8
        try:
            assert decode(key, bytes(flipped), type(document)) == document
        except ObjectDamaged:
            continue
        pytest.fail(f"bit {number} was not missed")


@pytest.mark.parametrize(("key", "document"), DOCUMENTS, ids=lambda one: str(one).partition("/")[0][:10])
def test_the_checksum_is_that_of_all_bytes_before_its_field(
    tmp_path: Path, key: str, document: msgspec.Struct
) -> None:
    data = manifests.encode(document)
    fields = json.loads(data)
    assert list(fields)[-1] == "checksum"
    body = data[: data.rindex(b',\n "checksum"')]
    assert fields.pop("checksum") == f"sha256:{hashlib.sha256(body).hexdigest()}"
    assert fields == msgspec.to_builtins(document)


@pytest.mark.parametrize(("key", "document"), DOCUMENTS, ids=lambda one: str(one).partition("/")[0][:10])
async def test_a_document_of_before_the_checksum_is_read(
    tmp_path: Path, key: str, document: msgspec.Struct
) -> None:
    put(tmp_path, key, without_checksum(document))
    assert await read(tmp_path, key) == document


OTHERS: list[tuple[str, msgspec.Struct, dict[str, Any]]] = [
    *((key, document, {"generation": 3}) for key, document in DOCUMENTS[:2]),
    *((key, document, {"group": 1}) for key, document in (DOCUMENTS[0], DOCUMENTS[2])),
    (*DOCUMENTS[0], {"position": LAST + 4}),
    (*DOCUMENTS[0], {"position": LAST - 4}),
    (*DOCUMENTS[0], {"start": FIRST + 1}),
    (*DOCUMENTS[0], {"state": MANIFEST.state[:1]}),
    (*DOCUMENTS[0], {"state": []}),
    (*DOCUMENTS[1], {"ended": {"0": (1 << 40) + 5}}),
    (*DOCUMENTS[1], {"groups": 0}),
    (*DOCUMENTS[2], {"position": LAST - 1}),
    (*DOCUMENTS[2], {"segments": [LiveSegment(SEGMENT, FIRST, LAST + 1, 3, 100)]}),
]


@pytest.mark.parametrize("written", [manifests.encode, without_checksum])
@pytest.mark.parametrize(("key", "document", "change"), OTHERS, ids=lambda one: str(one)[:24])
async def test_a_document_that_is_not_what_its_name_says_is_refused(
    tmp_path: Path, key: str, document: msgspec.Struct, change: dict[str, Any], written: Any
) -> None:
    put(tmp_path, key, written(msgspec.structs.replace(document, **change)))
    with pytest.raises(ObjectDamaged) as refused:
        await read(tmp_path, key)
    assert refused.value.key == key


async def test_a_damaged_manifest_is_passed_over_when_a_time_is_looked_for(tmp_path: Path) -> None:
    key, later = DOCUMENTS[0][0], keys.manifest_key(0, LAST)
    put(tmp_path, key, manifests.encode(MANIFEST))
    put(tmp_path, later, manifests.encode(MANIFEST).replace(b'"position"', b'"posit1on"'))
    found = [FoundManifest(LAST, later, 1), FoundManifest(LAST, key, 1)]
    assert await manifests.last_at(FsStore(tmp_path), found, MANIFEST.at) == 1
