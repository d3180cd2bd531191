"""Disks that are full or read-only, as the file system itself says it."""

import asyncio
import errno
import json
import os
import threading
import time
from itertools import product
from pathlib import Path

import pytest
from tests.faults.client import Answer, Client
from tests.faults.namespace import Forbidden, Namespace
from tests.faults.notes import note
from tests.faults.rounds import IS_LONG
from tests.faults.writers import BINARY
from tests.http.raw import ask
from tests.log.lossy_disk import LossyDisk
from tests.server import Server, ServerExited
from tests.waiting import wait_for

from ursula.log.file import FileLog

TMPFS = 'mount -t tmpfs -o size=2m tmpfs "$1"'
READ_ONLY = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1"'
PATH = "/v1/stream/full"
SEGMENT_BYTES = ("64KiB", "1MiB", "64MiB")
SIZES = (500, 3000, 200_000)
CORNERS = (("64KiB", 500), ("64KiB", 200_000), ("1MiB", 3000), ("64MiB", 500), ("64MiB", 200_000))


def namespace(folder: Path, mounts: str) -> Namespace:
    """A namespace with these mounts; where that is forbidden the test is skipped, and the report says so."""
    try:
        return Namespace(folder, mounts)
    except Forbidden as error:
        note(f"no mounts of our own ({error}): no server was run on a full or a read-only disk")
        pytest.skip(
            f"this machine forbids mounts ({error}); what a log does on such a disk is tested without "
            "mounts below and in tests/faults/test_power_loss.py"
        )


class Appends:
    """Numbered appends to one stream, and which of them were acknowledged."""

    def __init__(self, server: Server, size: int) -> None:
        self._client = Client(server)
        self._size = size
        self.sent = 0
        self.acknowledged: list[int] = []
        self.refused: set[int] = set()

    def append(self) -> Answer:
        """One append."""
        self.sent += 1
        answer = self._client.ask("POST", PATH, b"%08d" % self.sent + b"x" * (self._size - 8), BINARY)
        if answer.status == 204:
            self.acknowledged.append(self.sent)
        elif json.loads(answer.body)["error"]["code"] == "unavailable":
            self.refused.add(self.sent)
        return answer

    def until_full(self) -> Answer:
        """Append until one is refused."""
        for _ in range(10_000):
            answer = self.append()
            if answer.status != 204:
                return answer
        raise AssertionError("the disk never got full")

    def check(self, server: Server) -> None:
        """Every acknowledged one is there, once and in order, and nothing that was refused as not written."""
        self._client.close()
        self._client = Client(server)
        data = self._client.read(PATH)
        assert len(data) % self._size == 0
        found = [int(data[at : at + 8]) for at in range(0, len(data), self._size)]
        assert found == sorted(set(found))
        assert set(self.acknowledged) <= set(found)
        assert not self.refused & set(found)

    def close(self) -> None:
        """Hang up."""
        self._client.close()


def check_refusal(answer: Answer) -> None:
    """503 in the one shape of errors, saying whether it may be tried again."""
    assert answer.status == 503
    assert answer.headers["content-type"] == "application/json"
    error = json.loads(answer.body)["error"]
    assert error["code"] in ("unavailable", "outcome_unknown")
    assert ("retry-after" in answer.headers) == (error["code"] == "unavailable")
    assert "No space left on device" in error["message"]


@pytest.mark.parametrize(
    ("segment_bytes", "size"),
    [pair for pair in product(SEGMENT_BYTES, SIZES) if IS_LONG or pair in CORNERS],
)
def test_a_full_disk_refuses_appends_and_goes_on_when_there_is_room(
    tmp_path: Path, size: int, segment_bytes: str
) -> None:
    folder = tmp_path / "disk"
    folder.mkdir()
    inside = namespace(folder, TMPFS)
    with inside:
        filler = inside.folder / "filler"
        filler.write_bytes(b"f" * (1 << 20))
        settings = {"limits.log_segment_bytes": segment_bytes}
        server = Server(folder / "data", settings=settings, prefix=inside.prefix)
        with server:
            appends = Appends(server, size)
            client = Client(server)
            assert client.ask("PUT", PATH, headers=BINARY).status == 201
            check_refusal(appends.until_full())
            for _ in range(20):
                answer = appends.append()
                if answer.status != 204:
                    check_refusal(answer)
            appends.check(server)
            check_refusal(appends.until_full())
            ready = client.ask("GET", "/readyz/local")
            assert ready.status == 503
            assert "No space left on device" in json.loads(ready.body)["reason"]
            acknowledged = len(appends.acknowledged)

            # Killed and started again on the full disk: it serves what there is.
            server.kill()
            server.start()
            appends.check(server)
            check_refusal(appends.until_full())

            filler.unlink()
            assert wait_for(lambda: ask(server, "GET", "/readyz/local").status == 200), "without any append"
            assert appends.append().status == 204, "there is room again"
            assert appends.append().status == 204
            appends.check(server)
            check_refusal(appends.until_full())
            assert len(appends.acknowledged) > acknowledged
            assert 0 < len(server.complaints()) < 10, "a full disk is told of, but not with every request"
            assert server.stop() == 0
            server.start()
            appends.check(server)
            assert server.stop() == 0
            appends.close()
            client.close()


def test_live_readers_are_never_shown_what_a_full_disk_did_not_take(tmp_path: Path) -> None:
    folder = tmp_path / "disk"
    folder.mkdir()
    inside = namespace(folder, TMPFS)
    filler = inside.folder / "filler"
    with inside, Server(folder / "data", prefix=inside.prefix) as server:
        filler.write_bytes(b"f" * (256 << 10))
        client = Client(server)
        assert client.ask("PUT", PATH, headers=BINARY).status == 201
        seen: list[bytes] = []

        def follow() -> None:
            reader, offset = Client(server), "0"
            while b"end" not in b"".join(seen):
                answer = reader.ask("GET", f"{PATH}?offset={offset}&live=long-poll&timeout=1")
                assert answer.status in (200, 204)
                seen.append(answer.body)
                offset = answer.headers["stream-next-offset"]
            reader.close()

        reading = threading.Thread(target=follow)
        reading.start()
        appends = Appends(server, 50_000)
        for _ in range(5):
            appends.until_full()
        filler.unlink()  # or a store on the same disk may have taken the last of it
        give_up_at = time.monotonic() + 60
        while client.ask("POST", PATH, b"end", BINARY).status != 204:
            assert time.monotonic() < give_up_at, "not even three bytes fit"
        reading.join(60)
        assert not reading.is_alive()
        assert b"".join(seen) == client.read(PATH)
        server.kill()
        server.start()
        again = Client(server)
        assert again.read(PATH) == b"".join(seen)
        for connection in (again, client):
            connection.close()
        appends.close()


def test_a_new_log_is_not_opened_on_a_read_only_or_full_disk() -> None:
    read_only = LossyDisk()
    read_only.fail("create", errno.EROFS)
    with pytest.raises(OSError, match="Read-only"):
        asyncio.run(FileLog.open("log", disk=read_only))
    with pytest.raises(OSError, match="No space"):
        asyncio.run(FileLog.open("log", disk=LossyDisk(budget_bytes=0)))


@pytest.mark.parametrize("state", ["new", "used"])
def test_a_read_only_folder_stops_the_start_with_one_line(tmp_path: Path, state: str) -> None:
    folder = tmp_path / "disk"
    folder.mkdir()
    if state == "used":
        with Server(folder / "data") as server:
            assert server.stop() == 0
    inside = namespace(folder, READ_ONLY)
    with inside, pytest.raises(ServerExited) as caught:
        Server(folder / "data", prefix=inside.prefix).start()
    assert caught.value.exit_code == 1
    assert caught.value.stderr.count("\n") == 0
    assert caught.value.stderr.startswith("ursula: cannot write to the data folder")
    assert "Read-only file system" in caught.value.stderr


@pytest.mark.parametrize("room_bytes", [0, 4096], ids=["no room", "no room for a log"])
def test_a_new_folder_on_a_full_disk_stops_the_start_with_one_line(tmp_path: Path, room_bytes: int) -> None:
    folder = tmp_path / "disk"
    folder.mkdir()
    inside = namespace(folder, TMPFS)
    with inside:
        filler = inside.folder / "filler"
        with pytest.raises(OSError, match="No space"):
            filler.write_bytes(b"f" * (4 << 20))
        os.truncate(filler, filler.stat().st_size - room_bytes)
        server = Server(folder / "data", prefix=inside.prefix)
        with pytest.raises(ServerExited) as caught:
            server.start()
        assert caught.value.exit_code == 1
        line = caught.value.stderr.splitlines()[-1]
        assert line.startswith("ursula: cannot ")
        assert "No space left on device" in line
        assert str(folder / "data") in line
        filler.unlink()
        with server:
            assert server.stop() == 0
