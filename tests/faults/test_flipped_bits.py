"""One flipped bit in any file of the server: the right bytes or an error, never wrong bytes or silence.

A folder with everything in it is copied, one bit of one of its files is flipped, a server is started on it,
and everything is read, before and after a flush. Some bits mean nothing (the room behind the end of the log,
bytes of a Parquet file that nobody reads): then the right bytes are right.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import httpx
import pytest
from tests.cold.test_restore import command
from tests.faults.rounds import IS_LONG, ROUNDS, seeded
from tests.http.staged import stage
from tests.http.surface import MEBIBYTE, lines_of
from tests.http.test_bootstrap import parts_of
from tests.http.wire import BINARY, JSON, TEXT, make, post, producer
from tests.server import Server, ServerExited

from ursula.spark.executor_store import ExecutorStore
from ursula.spark.options import S3Options

SETTINGS = {"cold.flush_interval": "1h", "cold.cache_bytes": "0", "limits.log_segment_bytes": "64KiB"}
BUCKET = "/kept"
STREAMS = ("text", "json", "large", "later", "fork", "state")
SNAPSHOT = f"{BUCKET}/state/snapshot/6"

FLIPS = max(ROUNDS // 5, min(ROUNDS, 3))
"""So many bits of each kind of file: in the long run two starts each, for ten kinds."""

KINDS = {
    "log": "log/g0/*.log",
    "identity": "ursula.json",
    "applied": "applied.json",
    "manifest": "cold/manifests/g0/*.json",
    "state": "cold/state/g0/*.parquet",
    "segment": "cold/segments/g0/*.parquet",
    "blob": "cold/blobs/*/*/*",
    "staging": "cold/staging/*/*.arrow",
    "generation": "cold/generations/*.json",
    "live": "cold/live/*.json",
}
VERIFIED = ("manifest", "state", "segment", "generation", "live")
"""Of these every single bit counts for `ursula inspect --verify`."""


class Failed(Exception):
    """The server said that it cannot give what was asked for."""


class Kept(NamedTuple):
    """A folder of a server that has stopped, the object that waits in it, and all that can be read."""

    folder: Path
    staged: str
    picture: dict[str, Any]


def fill(api: httpx.Client) -> str:
    """Everything that makes a kind of file; returns the object that is staged."""
    assert api.put(BUCKET).status_code == 201
    for name, headers in (("text", TEXT), ("json", JSON), ("large", BINARY), ("state", TEXT)):
        make(api, f"{BUCKET}/{name}", headers)
    for part in range(4):
        for number in range(10):
            seq = part * 10 + number
            post(api, f"{BUCKET}/text", b"line %d\n" % seq * 30, {**TEXT, **producer(seq)}, status=200)
            post(api, f"{BUCKET}/json", b'[{"n":%d},{"half":%d.5}]' % (seq, seq), JSON)
        if part == 0:
            post(api, f"{BUCKET}/large", os.urandom(MEBIBYTE + 1000))
            post(api, f"{BUCKET}/state", b"before", TEXT)
            post(api, f"{BUCKET}/state", b"after", TEXT)
            fork = {"stream-forked-from": f"{BUCKET}/text", "stream-fork-offset": "210"}
            make(api, f"{BUCKET}/fork", {**TEXT, **fork})
            assert api.put(SNAPSHOT, headers=TEXT, content=os.urandom(50_000)).status_code == 204
        if part < 3:
            assert api.post("/cluster/flush").status_code == 200
    make(api, f"{BUCKET}/later", BINARY, os.urandom(MEBIBYTE + 2000))
    post(api, f"{BUCKET}/fork", b"the last of all", TEXT)
    return stage(api, BUCKET[1:], [("staged", b"row %d " % number) for number in range(200)])


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Kept:
    folder = tmp_path_factory.mktemp("flipped") / "data"
    with Server(folder, settings=SETTINGS) as server, httpx.Client(base_url=server.url, timeout=60) as api:
        staged = fill(api)
        picture = {name: read() for name, read in reads(api).items()}
        assert server.stop() == 0
    missing = [kind for kind, pattern in KINDS.items() if not list(folder.glob(pattern))]
    assert missing == []
    return Kept(folder, staged, picture)


# Reading everything


def asked(answer: httpx.Response) -> httpx.Response:
    if answer.status_code >= 500:
        assert answer.json()["error"]["message"], "an error says what is wrong"
        raise Failed(answer.text)
    assert answer.is_success, (answer.url, answer.status_code, answer.text)
    return answer


def pages(api: httpx.Client, path: str) -> Iterator[bytes]:
    after = "-1"
    while True:
        answer = asked(api.get(path, params={"offset": after}))
        yield answer.content
        after = answer.headers["stream-next-offset"]
        if "stream-up-to-date" in answer.headers:
            return


def content(api: httpx.Client, path: str) -> bytes:
    return b"".join(pages(api, path))


def feed(api: httpx.Client) -> list[dict[str, Any]]:
    return [line for page in pages(api, BUCKET) for line in lines_of(page)]


def head(api: httpx.Client, path: str) -> dict[str, str]:
    names = ("content-type", "stream-next-offset", "stream-earliest-offset", "stream-snapshot-digest")
    headers = asked(api.head(path)).headers
    return {name: headers[name] for name in names if name in headers}


def reads(api: httpx.Client) -> dict[str, Callable[[], Any]]:
    """All that can be read, by name."""
    found: dict[str, Callable[[], Any]] = {
        "feed": lambda: feed(api),
        "snapshot": lambda: asked(api.get(SNAPSHOT)).content,
        "bootstrap": lambda: [part.body for part in parts_of(asked(api.get(f"{BUCKET}/state/bootstrap")))],
    }
    for name in STREAMS:
        path = f"{BUCKET}/{name}"
        found[f"content of {name}"] = partial(content, api, path)
        found[f"head of {name}"] = partial(head, api, path)
    return found


def check(api: httpx.Client, expected: dict[str, Any], case: str) -> None:
    """Whatever is answered is right."""
    for name, read in reads(api).items():
        with suppress(Failed):
            found = read()
            if name == "feed":
                found = found[: len(expected[name])]  # what is ingested comes behind it
            assert found == expected[name], (case, name)


# Damage


def flip(file: Path, random: Random) -> str:
    """Flip a bit; says which."""
    data = bytearray(file.read_bytes())
    length = min(len(data.rstrip(b"\0")) + 64, len(data)) if file.suffix == ".log" else len(data)
    byte, bit = random.randrange(length), random.randrange(8)
    data[byte] ^= 1 << bit
    file.write_bytes(data)
    return f"{file.name}: bit {bit} of byte {byte} of {length}"


def check_live_list(kept: Kept, folder: Path, case: str) -> None:
    """Readers outside see the right list or none."""
    original = ExecutorStore(str(kept.folder / "cold"), S3Options()).live_list(0)
    del original["checksum"]
    with suppress(ValueError):
        found = ExecutorStore(str(folder / "cold"), S3Options()).live_list(0)
        assert {name: found.get(name) for name in original} == original, case


def check_ingest(api: httpx.Client, kept: Kept, case: str) -> None:
    body = {"bucket": BUCKET[1:], "app": "job", "version": 1, "objects": [kept.staged]}
    with suppress(Failed):
        assert asked(api.post("/cluster/ingest", json=body)).json()["appended"] == 200, case
        found = content(api, f"{BUCKET}/staged")
        assert found == b"".join(b"row %d " % number for number in range(200)), case


def starts(server: Server, case: str) -> bool:
    """Whether it does; a start that is refused says why on one line."""
    try:
        server.start()
    except ServerExited as error:
        message = error.stderr
    else:
        return True
    assert message.splitlines()[-1].startswith("ursula: "), (case, message)
    return False


def is_verified(kept: Kept, kind: str, file: Path) -> bool:
    """Whether `ursula inspect --verify` must find the bit.

    Of the blobs only the snapshot is named by a manifest. The body of `large` is in a segment by now, and
    that of `later` is named by the log alone.
    """
    return kind in VERIFIED or (kept.folder / file).read_bytes() == kept.picture["snapshot"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_flipped_bit_gives_the_right_bytes_or_an_error(kept: Kept, tmp_path: Path, kind: str) -> None:
    random = seeded(f"flipped bits {kind}")
    files = sorted(file.relative_to(kept.folder) for file in kept.folder.glob(KINDS[kind]))
    random.shuffle(files)
    for number in range(FLIPS):
        folder = Path(shutil.copytree(kept.folder, tmp_path / f"data-{number}"))
        file = files[number % len(files)]  # so each is damaged, if there are no more than flips
        case = flip(folder / file, random)
        check_live_list(kept, folder, case)
        if is_verified(kept, kind, file):
            assert "damaged" in command("inspect", str(folder / "cold"), "--verify", expect=1).stderr, case
        server = Server(folder, settings=SETTINGS)
        for _ in range(1 + IS_LONG):  # the second time with what the first has made of it
            if not starts(server, case):
                break
            with httpx.Client(base_url=server.url, timeout=60) as api:
                check(api, kept.picture, case)
                check_ingest(api, kept, case)
                with suppress(Failed):
                    asked(api.post("/cluster/flush"))
                check(api, kept.picture, case)
            server.stop()
        shutil.rmtree(folder)
