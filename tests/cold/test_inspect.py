"""`ursula inspect`: what a store holds, and that whatever is damaged in it is found and named."""

import json
import os
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest
from tests.cold.test_restore import FORGETFUL, client, command, fill, flush
from tests.http.wire import TEXT, post
from tests.server import Server
from typer.testing import Result

from ursula.cold.objects.checksum import digest_of
from ursula.cold.segment.report import examine
from ursula.cold.state.manifest import Generation, encode


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of a server that has ended."""
    folder = tmp_path_factory.mktemp("inspected") / "data"
    with Server(folder, settings=FORGETFUL) as server, client(server) as api:
        fill(api)
        for number in range(3):
            post(api, "/shop/text", b"more %d" % number * 100, TEXT)
            flush(api)
    return folder / "cold"


@pytest.fixture
def store(original: Path, tmp_path: Path) -> Path:
    """A copy of it, to be spoiled."""
    return Path(shutil.copytree(original, tmp_path / "cold"))


def inspect(store: Path | str, *arguments: str, expect: int = 0) -> Result:
    return command("inspect", str(store), *arguments, expect=expect)


def objects(store: Path, kind: str) -> list[Path]:
    """The objects of a kind, oldest first."""
    return sorted(path for path in (store / kind).rglob("*") if path.is_file())


def flip(path: Path, at: float = 0.5) -> None:
    """Change one bit, at this part of a file."""
    data = bytearray(path.read_bytes())
    data[int(at * (len(data) - 1))] ^= 1
    path.write_bytes(data)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def grow(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"!")


DAMAGES: dict[str, Callable[[Path], None]] = {
    "missing": Path.unlink,
    "cut off": cut,
    "longer": grow,
    "a bit at the beginning": lambda path: flip(path, 0.0),
    "a bit in the middle": flip,
    "a bit near the end": lambda path: flip(path, 0.98),
    "empty": lambda path: os.truncate(path, 0),
}


def test_a_store_that_is_whole_has_nothing_wrong(original: Path) -> None:
    text = inspect(original, "--verify").stdout
    assert text.startswith("everything up to 0000000109951162")
    assert "8 streams in 2 buckets" in text
    report = json.loads(inspect(original, "--verify", "--json").stdout)
    assert report["damaged"] == []
    assert report["total"]["blobs"] == 1
    assert report["total"]["payload_bytes"] > 2 << 20


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("kind", ["segments", "state", "blobs"])
def test_whatever_is_damaged_is_found_and_named(store: Path, kind: str, damage: str) -> None:
    spoiled = objects(store, kind)[0]
    if kind == "blobs":
        (spoiled,) = [path for path in objects(store, kind) if path.read_bytes().startswith(b"state ")]
    DAMAGES[damage](spoiled)
    key = spoiled.relative_to(store).as_posix()
    result = inspect(store, "--verify", expect=1)
    assert f"{key}: " in result.stdout
    assert "ursula: the store is damaged" in result.stderr
    report = json.loads(inspect(store, "--verify", "--json", expect=1).stdout)
    named = {found["name"] for found in report["damaged"]}
    assert key in named
    assert {name for name in named if name.startswith(("segments/", "state/", "blobs/"))} == {key}


def test_the_streams_that_lost_something_are_named_with_what(store: Path) -> None:
    objects(store, "segments")[-1].unlink()
    text = inspect(store, "--verify", expect=1).stdout
    tail = 40 * 30 * 7 + 30 * 30 + 3 * 600
    assert f"shop/text: no segment has its bytes from {tail - 600} up to {tail}\n" in text


def test_a_damaged_manifest_is_named_and_the_one_before_it_checked(store: Path) -> None:
    newest = objects(store, "manifests")[-1]
    cut(newest)
    text = inspect(store, "--verify", expect=1).stdout
    assert text.startswith(newest.relative_to(store).as_posix())
    assert len(text.splitlines()) == 1


def test_a_segment_that_is_another_one_is_found(store: Path) -> None:
    first, second = objects(store, "segments")[:2]
    first.write_bytes(second.read_bytes())
    assert first.name in inspect(store, "--verify", expect=1).stdout


def test_an_earlier_moment_is_checked_without_what_came_after(store: Path) -> None:
    position = objects(store, "manifests")[0].name.partition("-")[0]
    objects(store, "segments")[-1].unlink()
    assert position in inspect(store, "--verify", "--at", position).stdout


def test_the_list_has_every_segment(original: Path) -> None:
    text = inspect(original).stdout
    document = json.loads(inspect(original, "--json").stdout)
    (group,) = document["groups"]
    names = [path.relative_to(original).as_posix() for path in objects(original, "segments")]
    assert [found["path"] for found in group["segments"]] == names
    for found in group["segments"]:
        path = original / found["path"]
        assert found["path"] in text
        assert found["bytes"] == path.stat().st_size
        assert found["rows"] == pq.read_metadata(path).num_rows
    assert group["total"]["rows"] == sum(found["rows"] for found in group["segments"])
    assert len(group["manifests"]) == len(objects(original, "manifests"))


@pytest.mark.parametrize("more", [(), ("--verify",)])
def test_an_unknown_group_is_reported_with_those_that_exist(store: Path, more: tuple[str, ...]) -> None:
    for wrong in ("9", "-1"):
        complaint = inspect(store, "--group", wrong, *more, expect=1).stderr
        assert complaint == f"ursula: {store} has no group {wrong}: it has only group 0\n"
    begun = store / "generations" / "1.json"
    generation = msgspec.json.decode(begun.read_bytes(), type=Generation)
    begun.write_bytes(encode(msgspec.structs.replace(generation, groups=3)))
    complaint = inspect(store, "--group", "3", *more, expect=1).stderr
    assert complaint == f"ursula: {store} has no group 3: it has the groups 0 to 2\n"


def test_one_segment_is_shown_with_its_streams_and_row_groups(original: Path) -> None:
    segment = objects(original, "segments")[-1]
    key = segment.relative_to(original).as_posix()
    text = inspect(original, key).stdout
    assert "1 append" in text
    report = json.loads(inspect(original, key, "--json").stdout)
    (found,) = report["ranges"]
    assert (found["bucket"], found["stream"], found["messages"]) == ("shop", "text", 1)
    assert found["end"] - found["start"] == report["payload_bytes"] == 600
    assert sum(group["rows"] for group in report["row_groups"]) == report["rows"] == 1
    assert str(report["bytes"]) == str(segment.stat().st_size)


def test_a_manifest_is_shown_as_it_is(original: Path) -> None:
    path = objects(original, "manifests")[0]
    assert inspect(original, path.relative_to(original).as_posix()).stdout == path.read_text()


def test_a_damaged_segment_that_is_shown_ends_with_an_error(store: Path) -> None:
    segment = objects(store, "segments")[0]
    flip(segment, 0.3)
    key = segment.relative_to(store).as_posix()
    result = inspect(store, key, expect=1)
    assert f"ursula: {key}: row group " in result.stderr
    assert "the checksum does not match" in result.stderr


def test_every_single_bit_of_a_segment_counts(original: Path) -> None:
    path = objects(original, "segments")[-1]
    data = path.read_bytes()
    assert examine(path.name, data).problems == []
    whole = digest_of(data)
    footer_bytes = int.from_bytes(data[-8:-4], "little") + 8
    footer_crc = zlib.crc32(data[-footer_bytes:])
    for place in range(0, len(data), 7):
        spoiled = bytearray(data)
        spoiled[place] ^= 1 << place % 8
        assert examine(path.name, bytes(spoiled), whole, footer_crc).problems


def test_something_else_is_not_taken_for_a_store(tmp_path: Path) -> None:
    assert "is not a store of ursula" in inspect(tmp_path, expect=1).stderr
    assert "is not a store of ursula" in inspect(tmp_path / "nothing", "--verify", expect=1).stderr
    assert "is missing" in inspect(tmp_path, "segments/g0/x.parquet", expect=1).stderr
    assert not (tmp_path / "nothing").exists()
