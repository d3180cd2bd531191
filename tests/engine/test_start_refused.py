"""A start from a store and a log that do not fit: refused, with a text that says what is wrong."""

import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest
from tests.engine.nodes import begin, node_on, picture, write

from ursula.cold.objects.fs import FsStore
from ursula.cold.state.manifest import Generation, encode
from ursula.engine.node import Node
from ursula.engine.start.load_state import StoreRefused
from ursula.log.interface import LogDamaged

pytestmark = pytest.mark.anyio


def manifests(folder: Path) -> list[Path]:
    return sorted((folder / "cold" / "manifests" / "g0").iterdir())


async def filled(folder: Path, flushes: int = 3, between: Callable[[Node], object] | None = None) -> object:
    """A folder after some flushes; what could be seen of it at last."""
    async with node_on(folder) as node:
        await begin(node)
        for part in range(1, flushes + 1):
            await write(node, part)
            await node.flushers[0].flush()
            if between is not None and part == 1:
                between(node)
        await write(node, flushes + 1)
        return await picture(node)


async def refused(
    folder: Path, prepare: Callable[[], Awaitable[None]], kind: type[Exception] = StoreRefused
) -> str:
    """Why the folder is not started from."""
    await prepare()
    with pytest.raises(kind) as caught:
        async with node_on(folder):
            pass
    return str(caught.value)


async def test_a_log_that_ends_before_the_manifest_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "data"

    async def prepare() -> None:
        await filled(folder, 3, lambda _: shutil.copytree(folder / "log", tmp_path / "old"))
        shutil.rmtree(folder / "log")
        shutil.copytree(tmp_path / "old", folder / "log")
        (folder / "applied.json").unlink(missing_ok=True)

    text = await refused(folder, prepare)
    assert "they do not fit" in text
    assert "ursula restore" in text


async def test_a_log_that_is_gone_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "data"

    async def prepare() -> None:
        await filled(folder)
        shutil.rmtree(folder / "log")
        (folder / "applied.json").unlink(missing_ok=True)

    assert "they do not fit" in await refused(folder, prepare)


async def test_a_log_that_is_older_than_the_node_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "data"

    async def prepare() -> None:
        await filled(folder, 1)
        (folder / "applied.json").write_text("[1099511699999]")

    assert "older than the node" in await refused(folder, prepare, LogDamaged)


async def test_a_log_that_is_trimmed_beyond_the_manifest_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "data"

    async def prepare() -> None:
        await filled(folder, 5)
        for newer in manifests(folder)[1:]:
            newer.unlink()

    assert "they do not fit" in await refused(folder, prepare)


async def test_an_empty_store_beside_a_trimmed_log_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "data"

    async def prepare() -> None:
        await filled(folder, 5)
        shutil.rmtree(folder / "cold")

    text = await refused(folder, prepare)
    assert "no manifest" in text
    assert "cold.root" in text


async def test_a_generation_that_cannot_be_read_is_refused_and_no_restore_is_promised(tmp_path: Path) -> None:
    folder = tmp_path / "data"

    async def prepare() -> None:
        await filled(folder, 1)
        (folder / "cold" / "generations" / "1.json").write_text("{")

    text = await refused(folder, prepare)
    assert text.startswith("the object generations/1.json is damaged")
    assert "put it back from a copy of the store" in text
    assert "ursula restore" not in text


async def test_the_store_of_another_cluster_is_refused(tmp_path: Path) -> None:
    await filled(tmp_path / "one", 1)
    with pytest.raises(StoreRefused, match=r"belongs to the cluster .*, and this data folder to "):
        async with node_on(tmp_path / "other", FsStore(tmp_path / "one" / "cold")):
            pass


async def test_a_store_that_went_on_in_another_generation_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "data"

    async def prepare() -> None:
        await filled(folder, 1)
        generations = folder / "cold" / "generations"
        first = msgspec.json.decode((generations / "1.json").read_bytes(), type=Generation)
        (generations / "2.json").write_bytes(encode(msgspec.structs.replace(first, generation=2)))

    text = await refused(folder, prepare)
    assert "in generation 2, and this data folder in 1" in text


async def test_the_manifest_before_is_used_if_the_newest_is_damaged(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    expected = await filled(folder)
    newest = manifests(folder)[-1]
    newest.write_bytes(newest.read_bytes()[:-20])
    for _ in range(2):
        async with node_on(folder) as node:
            assert await picture(node) == expected


async def test_the_third_manifest_is_used_if_the_log_reaches_back_to_it(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    await filled(folder)
    newest = manifests(folder)[-1]
    newest.write_bytes(newest.read_bytes()[:-20])
    async with node_on(folder) as node:
        await write(node, 5)
        await node.flushers[0].flush()
        expected = await picture(node)
    newest = manifests(folder)[-1]
    newest.write_bytes(newest.read_bytes()[:-20])
    async with node_on(folder) as node:
        assert await picture(node) == expected


async def test_a_folder_that_says_another_number_of_groups_than_its_store_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "data"

    async def prepare() -> None:
        await filled(folder, 1)
        identity = folder / "ursula.json"
        identity.write_text(identity.read_text().replace('"groups":1', '"groups":3'))

    assert "ursula.json of this data folder says 3" in await refused(folder, prepare)


async def test_two_damaged_manifests_are_refused_by_name(tmp_path: Path) -> None:
    folder = tmp_path / "data"

    async def prepare() -> None:
        await filled(folder)
        for damaged in manifests(folder)[-2:]:
            damaged.write_bytes(b"{}")

    text = await refused(folder, prepare)
    for damaged in manifests(folder)[-2:]:
        assert damaged.name in text


@pytest.mark.parametrize("damage", ["missing", "short", "flipped"])
async def test_a_damaged_state_is_refused_by_name(tmp_path: Path, damage: str) -> None:
    folder = tmp_path / "data"
    names: list[str] = []

    async def prepare() -> None:
        await filled(folder)
        state = max((folder / "cold" / "state" / "g0").iterdir())
        names.append(state.name)
        data = bytearray(state.read_bytes())
        data[len(data) // 2] ^= 1
        if damage == "missing":
            state.unlink()
        else:
            state.write_bytes(data if damage == "flipped" else data[:-1])

    text = await refused(folder, prepare)
    assert names[0] in text
    assert "backup" in text
