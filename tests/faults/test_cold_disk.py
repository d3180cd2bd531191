"""The folder of the snapshots is full, read-only or damaged: it is told, and nothing else suffers."""

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.faults.client import Answer, Client
from tests.faults.namespace import Forbidden, Namespace
from tests.faults.notes import note
from tests.faults.writers import BINARY
from tests.server import Server

COLD_ONLY = 'mkdir -p "$1/data/cold" && mount -t tmpfs -o size=1m tmpfs "$1/data/cold"'
ONE_DISK = 'mount -t tmpfs -o size=2m tmpfs "$1"'
SMALL_LOG = (
    'mkdir -p "$1/data" && mount -t tmpfs -o size=1m tmpfs "$1/data" && '
    'mkdir "$1/data/cold" && mount -t tmpfs -o size=4m tmpfs "$1/data/cold"'
)
PATH = "/faults/a"
LARGE, SMALL = b"L" * 2_500_000, b"S" * 10_000


def namespace(tmp_path: Path, mounts: str) -> Namespace:
    """A namespace with these mounts; where that is forbidden the test is skipped, and the report says so."""
    folder = tmp_path / "disk"
    folder.mkdir()
    try:
        return Namespace(folder, mounts)
    except Forbidden as error:
        note(f"no mounts of our own ({error}): snapshots on a full and a read-only disk were not tried")
        pytest.skip(
            f"this machine lets nobody mount anything ({error}); what a snapshot that cannot be stored is "
            "answered is seen without mounts in tests/http/test_snapshots.py"
        )


class Stream:
    """A stream whose every append is a boundary for a snapshot."""

    def __init__(self, server: Server, path: str = PATH) -> None:
        self.client = Client(server)
        self.path = path
        self.tail = 0

    def make(self) -> None:
        """Make it, and perhaps its bucket."""
        assert self.client.ask("PUT", "/faults").status in (201, 409)
        assert self.client.ask("PUT", self.path, headers=BINARY).status == 201

    def move(self, server: Server) -> None:
        """Go on with a server that was started again."""
        self.close()
        self.client = Client(server)

    def append(self, body: bytes = b"message") -> Answer:
        """One append."""
        answer = self.client.ask("POST", self.path, body, BINARY)
        if answer.status == 204:
            self.tail = int(answer.headers["stream-next-offset"])
        return answer

    def publish(self, body: bytes, trim: bool = True) -> Answer:
        """A snapshot at the tail."""
        query = "" if trim else "?trim=false"
        answer = self.client.ask("PUT", f"{self.path}/snapshot/{self.tail}{query}", body, BINARY)
        self.client.close()  # the server does, if it did not want the rest of the body
        return answer

    def check(self, offset: int | None, body: bytes) -> None:
        """The visible snapshot is this one, or there is none."""
        head = self.client.ask("HEAD", self.path).headers
        if offset is None:
            assert "stream-snapshot-offset" not in head
            return
        assert int(head["stream-snapshot-offset"]) == offset
        answer = self.client.ask("GET", f"{self.path}/snapshot/{offset}")
        assert (answer.status, answer.body) == (200, body)

    def close(self) -> None:
        """Hang up."""
        self.client.close()


def check_refusal(answer: Answer, reason: str) -> None:
    """503 in the one shape of errors: not stored, why, and when to try again."""
    assert answer.status == 503, answer
    error = json.loads(answer.body)["error"]
    assert error["code"] == "store_unavailable"
    assert reason in error["message"]
    assert "retry-after" in answer.headers


def remount(inside: Namespace, tmp_path: Path, how: str) -> None:
    """Change the file system of the cold folder under a running server."""
    folder = tmp_path / "disk" / "data" / "cold"
    subprocess.run([*inside.prefix, "mount", "-o", f"remount,{how}", str(folder)], check=True)


def files(folder: Path) -> list[str]:
    """The blobs below the cold folder, whole or not, without folders."""
    cold = folder / "data" / "cold"
    found = [path for name in ("blobs", "tmp") for path in (cold / name).rglob("*")]
    return sorted(str(path.relative_to(cold)) for path in found if path.is_file())


def complaints(server: Server) -> list[dict[str, Any]]:
    """What it complained of, but that what is in memory cannot be flushed: that is told once, if at all."""
    found = server.complaints()
    unflushed = [entry for entry in found if "cannot be flushed" in entry["message"]]
    assert len(unflushed) <= 1, unflushed
    return [entry for entry in found if entry not in unflushed]


def test_a_full_cold_folder_refuses_snapshots_and_nothing_else(tmp_path: Path) -> None:
    with (
        namespace(tmp_path, COLD_ONLY) as inside,
        Server(tmp_path / "disk" / "data", prefix=inside.prefix) as server,
    ):
        stream = Stream(server)
        stream.make()
        assert stream.append().status == 204
        assert stream.publish(SMALL).status == 204
        kept, before = stream.tail, files(inside.folder)
        assert len(before) == 1
        for _ in range(5):
            assert stream.append().status == 204
            check_refusal(stream.publish(LARGE), "No space left on device")
            stream.check(kept, SMALL)
            assert files(inside.folder) == before, "what did not fit was left behind"
        assert stream.append().status == 204
        assert stream.publish(SMALL + b"2").status == 204, "there is room again"
        stream.check(stream.tail, SMALL + b"2")
        kept = stream.tail

        filler = inside.folder / "data" / "cold" / "filler"
        with pytest.raises(OSError, match="No space"):
            filler.write_bytes(b"f" * (4 << 20))
        server.kill()
        server.start()
        stream.move(server)
        stream.check(kept, SMALL + b"2")
        assert stream.append().status == 204
        check_refusal(stream.publish(SMALL), "No space left on device")
        filler.unlink()
        assert stream.publish(SMALL).status == 204
        stream.check(stream.tail, SMALL)
        stream.close()
        assert complaints(server) == []
        assert server.stop() == 0


def test_a_snapshot_that_fills_the_disk_gives_the_log_its_room_back(tmp_path: Path) -> None:
    with (
        namespace(tmp_path, ONE_DISK) as inside,
        Server(tmp_path / "disk" / "data", prefix=inside.prefix) as server,
    ):
        stream = Stream(server)
        stream.make()
        for _ in range(5):
            assert stream.append().status == 204
            check_refusal(stream.publish(LARGE), "No space left on device")
            assert stream.append(b"m" * 10_000).status == 204
        stream.check(None, b"")
        assert files(inside.folder) == []
        assert stream.publish(SMALL).status == 204
        server.kill()
        server.start()
        stream.move(server)
        stream.check(stream.tail, SMALL)
        stream.close()


def test_a_snapshot_that_the_log_does_not_take_is_not_there(tmp_path: Path) -> None:
    with (
        namespace(tmp_path, SMALL_LOG) as inside,
        Server(tmp_path / "disk" / "data", prefix=inside.prefix) as server,
    ):
        stream = Stream(server)
        stream.make()
        filler = inside.folder / "data" / "filler"
        filler.write_bytes(b"f" * (200 << 10))
        while stream.append(b"m" * 20_000).status == 204:
            pass
        while stream.append(b"m").status == 204:
            pass
        answer = stream.publish(SMALL, trim=False)
        assert answer.status == 503, answer
        error = json.loads(answer.body)["error"]
        assert error["code"] in ("unavailable", "outcome_unknown")
        assert "No space left on device" in error["message"]
        stream.check(None, b"")
        filler.unlink()
        assert stream.append().status == 204
        assert stream.publish(SMALL, trim=False).status == 204
        server.kill()
        server.start()
        stream.move(server)
        stream.check(stream.tail, SMALL)
        stream.close()


def test_a_read_only_cold_folder_refuses_snapshots_and_shows_those_it_has(tmp_path: Path) -> None:
    with (
        namespace(tmp_path, COLD_ONLY) as inside,
        Server(tmp_path / "disk" / "data", prefix=inside.prefix) as server,
    ):
        stream = Stream(server)
        stream.make()
        assert stream.append().status == 204
        assert stream.publish(SMALL).status == 204
        kept = stream.tail
        left = inside.folder / "data" / "cold" / "tmp" / "left"
        left.write_bytes(b"by a server that was killed")
        remount(inside, tmp_path, "ro")
        for _ in range(3):
            assert stream.append().status == 204
            check_refusal(stream.publish(SMALL), "Read-only file system")
            stream.check(kept, SMALL)
        server.kill()
        server.start()
        stream.move(server)
        stream.check(kept, SMALL)
        assert stream.append().status == 204
        check_refusal(stream.publish(SMALL), "Read-only file system")
        remount(inside, tmp_path, "rw")
        assert stream.publish(LARGE[:100_000]).status == 204
        stream.check(stream.tail, LARGE[:100_000])
        assert [entry["level"] for entry in complaints(server)] == ["warning"], "what is left was told"
        server.kill()
        server.start()
        stream.move(server)
        stream.check(stream.tail, LARGE[:100_000])
        assert not left.exists()
        stream.close()
        assert complaints(server) == []
        assert server.stop() == 0


def test_a_disk_without_room_for_another_name_refuses_snapshots_and_keeps_nothing_of_them(
    tmp_path: Path,
) -> None:
    few = COLD_ONLY.replace(
        "size=1m", "size=1m,nr_inodes=6"
    )  # the root, tmp, a generation in its folder, blobs and a file
    with (
        namespace(tmp_path, few) as inside,
        Server(tmp_path / "disk" / "data", prefix=inside.prefix) as server,
    ):
        stream = Stream(server)
        stream.make()
        for _ in range(5):
            assert stream.append().status == 204
            check_refusal(stream.publish(SMALL), "No space left on device")
            assert files(inside.folder) == []
        remount(inside, tmp_path, "nr_inodes=100")
        assert stream.publish(SMALL).status == 204
        stream.check(stream.tail, SMALL)
        stream.close()
        assert complaints(server) == []


def test_a_half_written_snapshot_that_someone_deletes_is_refused(tmp_path: Path) -> None:
    unfinished = tmp_path / "data" / "cold" / "tmp"
    with Server(tmp_path / "data") as server:
        stream = Stream(server)
        stream.make()

        def pieces() -> Iterator[bytes]:
            yield SMALL
            give_up_at = time.monotonic() + 60
            while not (found := list(unfinished.glob("*"))):
                assert time.monotonic() < give_up_at
            for path in found:
                path.unlink()
            yield SMALL

        answer = stream.client.ask("PUT", f"{PATH}/snapshot/0", pieces(), BINARY)
        check_refusal(answer, "No such file or directory")
        stream.check(None, b"")
        assert stream.publish(SMALL).status == 204
        stream.check(0, SMALL)
        stream.close()
        assert server.complaints() == []
        assert server.stop() == 0


def test_a_snapshot_whose_bytes_are_lost_is_an_error_that_says_so(tmp_path: Path) -> None:
    blobs = tmp_path / "data" / "cold" / "blobs"
    with Server(tmp_path / "data") as server:
        streams = [Stream(server, f"/faults/{name}") for name in ("cut", "deleted", "folder")]
        for stream in streams:
            before = set(blobs.glob("*/*/*"))
            stream.make()
            assert stream.append().status == 204
            assert stream.publish(SMALL).status == 204
            (blob,) = set(blobs.glob("*/*/*")) - before
            if stream.path == "/faults/cut":
                blob.write_bytes(SMALL[:-1])
            elif stream.path == "/faults/deleted":
                blob.unlink()
        shutil.rmtree(blob.parent)
        check_loss(streams)
        server.kill()
        server.start()
        for stream in streams:
            stream.move(server)
        check_loss(streams)
        shutil.rmtree(blobs)
        for stream in streams:
            assert stream.append().status == 204
            assert stream.publish(SMALL + b"new").status == 204, "a new one makes it good"
            stream.check(stream.tail, SMALL + b"new")
            assert stream.client.ask("GET", f"{stream.path}/bootstrap").status == 200
            stream.close()
        assert server.stop() == 0


def test_files_that_someone_else_put_among_the_snapshots_are_left_alone(tmp_path: Path) -> None:
    strange = tmp_path / "data" / "cold" / "blobs" / "faults" / "mine" / "notes.txt"
    strange.parent.mkdir(parents=True)
    strange.write_text("not a snapshot")
    with Server(tmp_path / "data") as server:
        stream = Stream(server)
        stream.make()
        assert stream.publish(SMALL).status == 204
        stream.check(0, SMALL)
        stream.close()
        assert server.complaints() == []
        assert server.stop() == 0
    assert strange.read_text() == "not a snapshot"


def check_loss(streams: list[Stream]) -> None:
    """Whoever wants the bytes is told that they are lost."""
    for stream in streams:
        for path in (f"{stream.path}/snapshot/{stream.tail}", f"{stream.path}/bootstrap"):
            answer = stream.client.ask("GET", path)
            assert answer.status == 500, answer
            error = json.loads(answer.body)["error"]
            assert error["code"] == "object_damaged"
            assert "snapshot" in error["message"]
        assert stream.client.ask("HEAD", f"{stream.path}/snapshot/{stream.tail}").status == 500
