"""A data folder and a store that an older revision has written open as they are, and nothing in them is lost.

`make_fixture.py` made them, and recorded what the older revision answered from them.
"""

import json
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from tests.cold.test_restore import command
from tests.server import Server
from tests.upgrade.contents import change, read

HERE = Path(__file__).parent
FIXTURES = sorted(path.name.removesuffix(".tar.xz") for path in HERE.glob("*.tar.xz"))


class Upgraded(NamedTuple):
    """A present server on an old folder."""

    server: Server
    api: httpx.Client
    expected: dict[str, Any]


def unpacked(name: str, folder: Path) -> Path:
    """The data folder as the older revision left it."""
    with tarfile.open(HERE / f"{name}.tar.xz") as tar:
        tar.extractall(folder, filter="data")
    return folder / "data"


@pytest.fixture(params=FIXTURES)
def upgraded(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Upgraded]:
    """Its clock goes on where the older revision ended: nothing has expired or was collected since."""
    expected = json.loads((HERE / f"{request.param}.json").read_text())
    settings = {"cold.flush_interval": "1h"}
    server = Server(unpacked(request.param, tmp_path), settings=settings, movable_clock=True)
    server.pass_time(expected["written_at"] - time.time())
    with server, httpx.Client(base_url=server.url, timeout=60) as api:
        yield Upgraded(server, api, expected)
        assert server.complaints() == []
        assert server.stop() == 0


def matching(found: dict[str, Any], expected: dict[str, Any]) -> dict[str, Any]:
    """An answer without headers that the older revision did not send."""
    if "headers" not in expected:
        return found
    headers = {name: value for name, value in found["headers"].items() if name in expected["headers"]}
    return found | {"headers": headers}


def test_there_are_fixtures() -> None:
    assert len(FIXTURES) >= 2


def test_everything_reads_as_before(upgraded: Upgraded) -> None:
    expected = upgraded.expected["read"]
    found = read(upgraded.api)
    assert found.keys() == expected.keys()
    for request, answer in expected.items():
        assert matching(found[request], answer) == answer, request


def test_everything_reads_as_before_once_it_is_flushed_and_loaded_again(upgraded: Upgraded) -> None:
    upgraded.api.post("/cluster/flush").raise_for_status()
    upgraded.server.restart()
    expected = upgraded.expected["read"]
    with httpx.Client(base_url=upgraded.server.url, timeout=60) as api:
        found = read(api)
    for request, answer in expected.items():
        if request.startswith("feed"):
            answer["headers"].pop("stream-next-offset", None)  # a flush is an entry of the log too
        assert matching(found[request], answer) == answer, request


def test_what_is_known_of_earlier_writes_decides_about_later_ones(upgraded: Upgraded) -> None:
    expected = upgraded.expected["changed"]
    found = change(upgraded.api)
    assert [answer["request"] for answer in found] == [answer["request"] for answer in expected]
    for answer, before in zip(found, expected, strict=True):
        assert matching(answer, before) == before


@pytest.mark.parametrize("name", FIXTURES)
def test_the_store_is_found_whole(tmp_path: Path, name: str) -> None:
    folder = unpacked(name, tmp_path)
    assert command("inspect", str(folder / "cold"), "--verify").output.startswith("everything up to ")
