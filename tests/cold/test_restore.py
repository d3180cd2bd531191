"""`ursula restore`, from the original server to the new one: every stream is the same, byte for byte."""

import json
import os
import pty
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import msgspec
import pytest
from tests.cold.seaweed import ACCESS_KEY_ID, SECRET_ACCESS_KEY, Seaweed
from tests.http.surface import MEBIBYTE, feed, lines_of, position_of
from tests.http.wire import BINARY, CLOSED, JSON, TEXT, make, post, producer, refused
from tests.server import STOP_SECONDS_MAX, Server, ServerExited
from typer.testing import CliRunner, Result

from ursula.cli import app
from ursula.cold.state.manifest import encode
from ursula.engine.start.heartbeat import Heartbeat

FORGETFUL = {"cold.flush_size": "16KiB", "cold.cache_bytes": "0"}
BUCKET = "/shop"
KEPT: tuple[str, ...] = (
    "content-type",
    "stream-next-offset",
    "stream-closed",
    "stream-ttl",
    "stream-expires-at",
)
KEPT += ("stream-earliest-offset", "stream-record-first", "stream-record-next", "stream-snapshot-digest")

_numbers = count()


class Place(NamedTuple):
    """Where a store is, and the settings with which it is reached."""

    store: str
    settings: dict[str, str]


@pytest.fixture(params=["fs", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A store that is empty."""
    if request.param == "fs":
        return Place(str(tmp_path / "cold"), {"cold.root": str(tmp_path / "cold")})
    seaweed: Seaweed = request.getfixturevalue("seaweed")
    bucket, prefix = seaweed.bucket("restore"), f"a/prefix-{next(_numbers)}"
    return Place(
        f"s3://{bucket}/{prefix}",
        {
            "cold.backend": "s3",
            "cold.root": prefix,
            "cold.s3_bucket": bucket,
            "cold.s3_endpoint": seaweed.endpoint,
            "cold.s3_access_key_id": ACCESS_KEY_ID,
            "cold.s3_secret_access_key": SECRET_ACCESS_KEY,
        },
    )


def variables(settings: Mapping[str, str]) -> dict[str, str]:
    """Settings as the environment has them."""
    return {"URSULA_" + name.upper().replace(".", "__"): value for name, value in settings.items()}


def command(*arguments: str, settings: Mapping[str, str] | None = None, expect: int = 0) -> Result:
    """A command, and what it said."""
    runner = CliRunner(env={**variables(settings or {}), "COLUMNS": "200", "TERM": "dumb"})
    result = runner.invoke(app, arguments)
    assert result.exit_code == expect, (result.output, result.exception)
    return result


def client(server: Server) -> httpx.Client:
    return httpx.Client(base_url=server.url, timeout=60)


def fill(api: httpx.Client) -> None:
    """Streams of every kind, in every condition that one can be in."""
    assert api.put(BUCKET).status_code == 201
    assert api.put("/empty").status_code == 201
    make(api, f"{BUCKET}/text", TEXT)
    make(api, f"{BUCKET}/json", JSON)
    make(api, f"{BUCKET}/large", BINARY)
    make(api, f"{BUCKET}/lives", {**TEXT, "stream-ttl": "3600"})
    make(api, f"{BUCKET}/ends", {**TEXT, "stream-expires-at": "2199-01-01T00:00:00Z"})
    for number in range(40):
        post(api, f"{BUCKET}/text", b"line %d\n" % number * 30, {**TEXT, **producer(number)}, status=200)
        post(api, f"{BUCKET}/json", b'[{"n":%d},{"half":%d.5}]' % (number, number), JSON)
    post(api, f"{BUCKET}/large", os.urandom(2 * MEBIBYTE))
    post(api, f"{BUCKET}/large", b"and a little")
    post(api, f"{BUCKET}/lives", b"for an hour", TEXT)
    fork = {"stream-forked-from": f"{BUCKET}/text", "stream-fork-offset": "270"}
    make(api, f"{BUCKET}/fork", {**TEXT, **fork})
    post(api, f"{BUCKET}/fork", b"another way", TEXT)
    answer = api.put(f"{BUCKET}/json/attrs", json={"title": "Orders", "of": 2})
    assert answer.is_success, answer.text
    tail = api.head(f"{BUCKET}/json").headers["stream-next-offset"]
    answer = api.put(f"{BUCKET}/json/snapshot/{tail}", headers=TEXT, content=b"state " * 1000)
    assert answer.status_code == 204, answer.text
    for name in ("parent", "gone"):
        make(api, f"{BUCKET}/{name}", TEXT, b"what was said before")
    fork = {"stream-forked-from": f"{BUCKET}/parent"}
    make(api, f"{BUCKET}/orphan", {**TEXT, **fork})
    post(api, f"{BUCKET}/orphan", b" and after", TEXT)
    for name in ("parent", "gone"):
        assert api.delete(f"{BUCKET}/{name}").status_code == 204
    make(api, f"{BUCKET}/done", TEXT, b"this is")
    post(api, f"{BUCKET}/done", b" the end", {**TEXT, **CLOSED})
    flush(api)


def flush(api: httpx.Client) -> int:
    """Have everything stored; how far that is."""
    answer = api.post("/cluster/flush")
    assert answer.status_code == 200, answer.text
    position: int = answer.json()["groups"][0]["position"]
    return position


def look(api: httpx.Client) -> dict[str, object]:
    """All that a client can see, but for the generation."""
    seen: dict[str, object] = {"feed": feed(api, BUCKET), "buckets": api.get("/cluster/buckets").json()}
    listed = api.get(f"{BUCKET}/streams").json()
    seen["list"] = listed
    for name in ("text", "json", "large", "lives", "ends", "fork", "orphan", "done", "parent", "gone"):
        path = f"{BUCKET}/{name}"
        head = api.head(path)
        about: dict[str, Any] = {kept: head.headers.get(kept) for kept in KEPT}
        about["incarnation"] = head.headers.get("stream-incarnation", "").partition("-")[2]
        about["status"] = head.status_code
        if head.is_success:
            about["content"] = read(api, path)
            about["attributes"] = api.get(f"{path}/attrs").json()
            about["snapshot"] = api.get(f"{path}/snapshot", follow_redirects=True).content
            about["snapshot"] = b"" if b"snapshot_not_found" in about["snapshot"] else about["snapshot"]
        seen[name] = about
    return seen


def read(api: httpx.Client, path: str) -> bytes:
    """Everything in a stream."""
    pieces, at = [], "-1"
    while True:
        answer = api.get(path, params={"offset": at})
        assert answer.status_code == 200, (path, answer.text)
        pieces.append(answer.content)
        at = answer.headers["stream-next-offset"]
        if "stream-up-to-date" in answer.headers:
            return b"".join(pieces)


def test_every_stream_is_the_same_after_a_restore_and_continues(place: Place, tmp_path: Path) -> None:
    settings = {**FORGETFUL, **place.settings}
    with Server(tmp_path / "old", settings=settings) as old, client(old) as api:
        fill(api)
        expected = look(api)
        etag = api.head(f"{BUCKET}/text").headers["etag"]
        page = api.get(BUCKET, params={"offset": "-1", "max_bytes": str(16 * MEBIBYTE)})
        assert "stream-up-to-date" in page.headers
        kept, until = page.headers["stream-next-offset"], len(lines_of(page.content))
        post(api, f"{BUCKET}/text", b"never flushed", {**TEXT, **producer(40)}, status=200)
        rewound = position_of(api, BUCKET)
        old.kill()
    arguments = ("restore", "--from", place.store, "--data-dir", str(tmp_path / "new"), "--verify", "--json")
    report = json.loads(command(*arguments, settings=place.settings).stdout)
    assert (report["generation"], report["streams"], report["buckets"]) == (2, 8, 2)
    assert report["damaged"] == []
    with Server(tmp_path / "new", settings=settings) as new, client(new) as api:
        assert look(api) == expected
        assert api.get("/cluster/status").json()["generation"] == 2

        # Positions and tags of before.
        assert feed(api, BUCKET, kept) == []
        told = refused(api.get(BUCKET, params={"offset": rewound}), 410, "position_rewound")
        assert feed(api, BUCKET, told["position"]) == []
        refused(api.get(BUCKET, params={"offset": "-1", "until": rewound}), 410, "position_rewound")
        planned = refused(
            api.get("/cluster/plan", params={"bucket": BUCKET[1:], "after": rewound}), 410, "position_rewound"
        )
        assert planned["position"] == told["position"]
        for live in ("long-poll", "sse"):
            answer = api.get(BUCKET, params={"offset": rewound, "live": live})
            refused(answer, 410, "position_rewound")
        refused(
            api.post(f"{BUCKET}/text", headers={**TEXT, "if-match": etag}, content=b"x"),
            412,
            "precondition_failed",
        )

        # Everything goes on from there.
        assert (
            api.post(f"{BUCKET}/text", headers={**TEXT, **producer(39)}, content=b"again").status_code == 204
        )
        post(api, f"{BUCKET}/text", b"something else", {**TEXT, **producer(40)}, status=200)
        post(api, f"{BUCKET}/fork", b", and on", TEXT)
        refused(api.post(f"{BUCKET}/done", headers=TEXT, content=b"no"), 409, "stream_closed")
        answer = api.post("/cluster/undelete", json={"bucket": "shop", "stream": "gone"})
        assert answer.status_code == 200, answer.text
        assert read(api, f"{BUCKET}/gone") == b"what was said before"
        flush(api)
        after = look(api)
        assert [row["kind"] for row in feed(api, BUCKET)][until:] == ["append", "append", "undelete"]
        assert new.complaints() == []
        new.kill()
        with client(new.start()) as again:
            assert look(again) == after
        assert new.stop() == 0
    assert "everything up to" in command("inspect", place.store, "--verify", settings=place.settings).stdout


def test_a_server_that_still_runs_on_the_store_stops_and_says_why(tmp_path: Path) -> None:
    settings = {**FORGETFUL, "cold.flush_interval": "50ms"}
    with Server(tmp_path / "old", settings=settings) as old, client(old) as api:
        make(api, "/shop/text", TEXT, b"one") if api.put("/shop").is_success else None
        position = flush(api)
        post(api, "/shop/text", b"two", TEXT)
        later = flush(api)
        store = str(tmp_path / "old" / "cold")
        arguments = ["restore", "--from", store, "--data-dir", str(tmp_path / "new"), "--at", str(position)]
        complaint = command(*arguments, expect=1).stderr
        assert f"{store} is in use: node 1 at 127.0.0.1:{old.port} on " in complaint
        assert "--take-over" in complaint
        assert not (tmp_path / "new").exists()
        assert not (Path(store) / "generations" / "2.json").exists()
        result = command(*arguments, "--take-over")
        facts = dict(line.split(maxsplit=1) for line in result.stdout.splitlines())
        assert f"position {position:020d}" in facts["as"]
        assert "with 1 later flush\n" in result.stdout
        start = result.stdout.splitlines()[-1].removeprefix("start it with").strip()
        assert start == (
            f"URSULA_COLD__BACKEND=fs URSULA_COLD__ROOT={store} ursula serve --data-dir {tmp_path / 'new'}"
        )
        post(api, "/shop/text", b"three", TEXT)
        assert old.process.wait(STOP_SECONDS_MAX) == 1
        assert "the store is in generation 2, and this node in 1" in old.log[-1]["message"]
        old.kill()
        with pytest.raises(ServerExited, match="is in generation 2, and this data folder in 1"):
            old.start()
    with Server(tmp_path / "new", settings={**settings, "cold.root": store}) as new, client(new) as api:
        assert read(api, "/shop/text") == b"one"
        refused(api.get("/shop", params={"offset": str(later)}), 410, "position_rewound")


def heartbeats(store: Path) -> list[Path]:
    return list((store / "alive").glob("*"))


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Server]:
    """A server whose store has everything."""
    with Server(tmp_path / "old", settings={"cold.flush_interval": "1h"}) as server, client(server) as api:
        assert api.put("/shop").is_success
        make(api, "/shop/text", TEXT, b"one")
        flush(api)
        yield server


def restore_from(store: Path, folder: Path, *more: str, expect: int = 0) -> str:
    """Run it; what it complained about."""
    arguments = ["restore", "--from", str(store), "--data-dir", str(folder), *more]
    return command(*arguments, expect=expect).stderr


def test_a_store_is_free_as_soon_as_its_server_has_stopped(running: Server, tmp_path: Path) -> None:
    store = tmp_path / "old" / "cold"
    (heartbeat,) = heartbeats(store)
    said = json.loads(heartbeat.read_text())
    assert said["address"] == f"127.0.0.1:{running.port}"
    assert f"127.0.0.1:{running.port}" in command("inspect", str(store)).stdout
    (server,) = json.loads(command("inspect", str(store), "--json").stdout)["servers"]
    assert server == {key: said[key] for key in server}
    assert "is in use" in restore_from(store, tmp_path / "new", expect=1)
    assert running.stop() == 0
    assert heartbeats(store) == []
    restore_from(store, tmp_path / "new")


def test_a_store_is_free_when_its_server_was_killed_on_this_machine(running: Server, tmp_path: Path) -> None:
    store = tmp_path / "old" / "cold"
    running.kill()
    assert len(heartbeats(store)) == 1
    restore_from(store, tmp_path / "new")
    settings = {"cold.root": str(store)}
    with Server(tmp_path / "new", settings=settings) as new, client(new) as api:
        assert read(api, "/shop/text") == b"one"
        while len(heartbeats(store)) > 1:
            time.sleep(0.05)
        assert heartbeats(store)[0].name == "2-n1.json"


def test_a_server_that_was_killed_elsewhere_counts_as_dead_when_it_was_silent_for_long(
    running: Server, tmp_path: Path
) -> None:
    store = tmp_path / "old" / "cold"
    running.kill()
    (path,) = heartbeats(store)
    found = msgspec.json.decode(path.read_bytes(), type=Heartbeat)
    path.write_bytes(encode(msgspec.structs.replace(found, host="elsewhere", at=found.at + 3_600_000_000)))
    assert "on elsewhere said so 0 s ago" in restore_from(store, tmp_path / "new", expect=1)
    path.write_bytes(encode(msgspec.structs.replace(found, host="elsewhere")).replace(b"node", b"n0de"))
    assert "which cannot be read" in restore_from(store, tmp_path / "new", expect=1)
    silent = found.at - int(found.patience_seconds * 1_000_000)
    path.write_bytes(encode(msgspec.structs.replace(found, host="elsewhere", at=silent)))
    restore_from(store, tmp_path / "new")


def test_a_copy_of_a_store_in_use_has_no_other_owner(running: Server, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(tmp_path / "old" / "cold", tmp_path / "copy"))
    assert len(heartbeats(copy)) == 1
    restore_from(copy, tmp_path / "new")
    assert running.process.poll() is None


def test_a_deleted_stream_is_still_known_by_the_name_it_had_before_a_restore(tmp_path: Path) -> None:
    with Server(tmp_path / "old", settings=FORGETFUL) as old, client(old) as api:
        assert api.put("/shop").status_code == 201
        noted = []
        for text in (b"first", b"second"):
            make(api, "/shop/text", TEXT, text)
            noted.append(api.delete("/shop/text").headers["stream-incarnation"])
        flush(api)
    new = tmp_path / "new"
    new.mkdir()
    (tmp_path / "old" / "cold").rename(new / "cold")
    command("restore", "--from", str(new / "cold"), "--data-dir", str(new))
    with Server(new, settings=FORGETFUL) as running, client(running) as api:
        wanted = {"bucket": "shop", "stream": "text", "incarnation": noted[0]}
        answer = api.post("/cluster/undelete", json=wanted)
        assert answer.status_code == 200, answer.text
        generation, _, rest = noted[0].partition("-")
        assert answer.json()["incarnation"] == f"{int(generation) + 1}-{rest}"
        assert read(api, "/shop/text") == b"first"
        headers = {**TEXT, "stream-incarnation": noted[0]}
        refused(api.post("/shop/text", headers=headers, content=b"x"), 412, "incarnation_mismatch")


def test_a_folder_that_holds_only_its_store_needs_no_settings(tmp_path: Path) -> None:
    with Server(tmp_path / "old", settings=FORGETFUL) as old, client(old) as api:
        make(api, "/shop/text", TEXT, b"one") if api.put("/shop").is_success else None
        flush(api)
    new = tmp_path / "new"
    new.mkdir()
    (tmp_path / "old" / "cold").rename(new / "cold")
    result = command("restore", "--from", str(new / "cold"), "--data-dir", str(new))
    assert result.stdout.splitlines()[-1] == f"start it with   ursula serve --data-dir {new}"
    assert re.search("^ursula: reading the state ...$", result.stderr, re.MULTILINE)
    with Server(new, settings=FORGETFUL) as running, client(running) as api:
        assert read(api, "/shop/text") == b"one"


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of a server that has ended."""
    folder = tmp_path_factory.mktemp("stored") / "data"
    with Server(folder, settings=FORGETFUL) as server, client(server) as api:
        fill(api)
    return folder / "cold"


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--data-dir", "{new}", "--at", "2000-01-01T00:00:00Z"], 1, "the oldest manifest is of 2"),
        (["--data-dir", "{new}", "--at", "17"], 1, "the oldest manifest is of position 1"),
        (["--data-dir", "{new}", "--at", "long ago"], 2, "is neither a position nor a time"),
        (["--data-dir", "{new}", "--at", "9999-12-31T23:59:59-23:59"], 2, "is neither a position nor a time"),
        (["--data-dir", "{store}/.."], 1, "restore makes a new node and does not change"),
        (["--from", "{new}", "--data-dir", "{new}/data"], 1, "is not a store of ursula"),
        (["--from", "s3:///prefix", "--data-dir", "{new}"], 2, "names no bucket"),
    ],
)
def test_what_cannot_be_restored_is_refused_with_what_to_do(
    stored: Path, tmp_path: Path, arguments: list[str], code: int, words: str
) -> None:
    filled = [argument.format(new=tmp_path / "new", store=stored) for argument in arguments]
    source = [] if "--from" in filled else ["--from", str(stored)]
    before = sorted(stored.parent.iterdir())
    result = command("restore", *source, *filled, expect=code)
    assert words in " ".join(result.output.replace("│", " ").split())
    assert not (stored / "generations" / "2.json").exists()
    assert sorted(stored.parent.iterdir()) == before
    assert list(tmp_path.iterdir()) == []


def test_the_message_about_a_damaged_manifest_leads_to_a_working_node(stored: Path, tmp_path: Path) -> None:
    store = tmp_path / "copy"
    shutil.copytree(stored, store)
    newest, before = sorted((store / "manifests" / "g0").iterdir(), reverse=True)[:2]
    newest.write_text("{")
    arguments = ("restore", "--from", str(store), "--data-dir", str(tmp_path / "new"))
    complaint = " ".join(command(*arguments, expect=1).stderr.split())
    assert f"the object manifests/g0/{newest.name} is damaged" in complaint
    hint = re.search(r"put it back from a backup, or go back to the one before with (--at) (\d+)$", complaint)
    assert hint is not None, complaint
    report = command(*arguments, *hint.groups()).stdout
    assert before.name.partition("-")[0] in report
    assert "with 1 later flush\n" in report


@pytest.mark.parametrize("verb", ["restore", "inspect"])
def test_a_damaged_generation_is_reported_with_a_hint(stored: Path, tmp_path: Path, verb: str) -> None:
    store = tmp_path / "copy"
    shutil.copytree(stored, store)
    (store / "generations" / "1.json").write_text("{")
    arguments = (
        [str(store)] if verb == "inspect" else ["--from", str(store), "--data-dir", str(tmp_path / "new")]
    )
    (complaint,) = command(verb, *arguments, expect=1).stderr.splitlines()
    assert complaint.startswith("ursula: the object generations/1.json is damaged")
    assert "put it back from a copy of the store" in complaint
    assert not (tmp_path / "new").exists()


def test_a_pipe_sees_lines_and_no_bar(stored: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-m", "ursula", "inspect", str(stored), "--verify"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr.splitlines() == ["ursula: reading segments ...", "ursula: reading snapshots ..."]


def test_a_terminal_sees_the_bar_of_a_restore_and_its_report_is_clean(stored: Path, tmp_path: Path) -> None:
    shutil.copytree(stored, tmp_path / "cold")
    arguments = ["restore", "--from", str(tmp_path / "cold"), "--data-dir", str(tmp_path / "new")]
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "ursula", *arguments, "--verify", "--json"],
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120", "PYTHONUTF8": "1"},
        stdout=subprocess.PIPE,
        stderr=theirs,
    ) as restoring:
        os.close(theirs)
        shown = b""
        with suppress(OSError):  # a terminal whose other end is closed
            while piece := os.read(ours, 65536):
                shown += piece
        report, _ = restoring.communicate(timeout=60)
    os.close(ours)
    assert restoring.returncode == 0, shown
    assert json.loads(report)["generation"] == 2
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode())
    assert re.search("writing the new state ━+ 100%", text), text
    assert "ursula:" not in text, "lines are for output that is not a terminal"
    assert shown.rstrip().endswith(b"\x1b[2K"), "the bar is gone at the end"
