"""The commands for streams and buckets, as a person at a shell and a pipe see them."""

import json
import os
from pathlib import Path

from tests.server import Server
from tests.terminal.shell import Shell

from ursula.client import Client

JSON = "application/json"


def test_a_stream_is_made_written_read_and_deleted(shell: Shell, name: str) -> None:
    assert shell("create", name, "-t", "text/plain") == f"created stream {name}\n"
    assert shell("create", name, "-t", "text/plain") == f"stream {name} exists\n"
    offset = shell("append", name, "hello, ").strip()
    shell("append", name, typed="world\n")
    assert shell("read", name) == "hello, world\n"
    assert shell("read", name, "--offset", offset) == "world\n"
    assert shell("close", name) == f"closed stream {name}\n"
    assert "nothing more can be appended" in shell.complaint("append", name, "x")
    assert shell("delete", name) == f"deleted stream {name}\n"
    assert "ursula create" in shell.complaint("read", name)


def test_a_bucket_is_made_with_its_stream_and_said_to_be(shell: Shell, name: str) -> None:
    bucket = name.replace("/", "-")
    result = shell.run("create", f"{bucket}/one")
    assert result.stderr == f"ursula: created bucket {bucket}\n"
    assert result.stdout == f"created stream {bucket}/one\n"
    assert shell("create", bucket) == f"bucket {bucket} exists\n"
    assert "ursula ls" in shell.complaint("delete", bucket)
    shell("delete", f"{bucket}/one")
    assert shell("delete", bucket) == f"deleted bucket {bucket}\n"
    assert shell("create", bucket) == f"created bucket {bucket}\n"


def test_a_stream_can_be_named_in_several_ways(shell: Shell, server: Server, name: str) -> None:
    shell("create", f"/v1/stream/{name}/deep/er", "-t", "text/plain")
    shell("append", f"{name}/deep/er", "x")
    elsewhere = Shell("http://127.0.0.1:9")
    assert elsewhere("read", f"{server.url}/v1/stream/{name}/deep/er") == "x"
    shell("create", f"{name} ä", "-t", "text/plain")
    shell("append", f"{name} ä", "y")
    assert elsewhere("read", f"{server.url}/{name}%20%C3%A4") == "y"
    assert "write bucket/stream" in shell.complaint("read", "nothing", expect=2)


def test_create_passes_on_what_is_asked_for(shell: Shell, client: Client, name: str) -> None:
    shell("create", name, "-t", JSON, "--ttl", "90", "--attrs", '{"title": "T"}')
    shell("append", name, "[1, 2]")
    assert client.stream(name).head().ttl_seconds == 90
    assert json.loads(shell("attrs", "get", name)) == {"title": "T"}
    shell("create", f"{name}-fork", "--fork-of", name)
    assert shell("read", f"{name}-fork") == "1\n2\n"
    shell("create", f"{name}-closed", "--closed", "--expires-at", "2100-01-01T00:00:00Z")
    info = client.stream(f"{name}-closed").head()
    assert (info.closed, info.expires_at) == (True, "2100-01-01T00:00:00Z")
    assert "ursula head" in shell.complaint("create", name, "-t", "text/plain")
    assert "not JSON" in shell.complaint("create", name, "--attrs", "x", expect=2)


def test_json_values_are_printed_as_they_were_sent_one_on_each_line(shell: Shell, name: str) -> None:
    shell("create", name, "-t", JSON)
    shell("append", name, '[1.0, {"b": 1, "a":\n 12345678901234567890123}, "x, ]"]')
    expected = '1.0\n{"b": 1, "a":  12345678901234567890123}\n"x, ]"\n'
    assert shell("read", name) == expected
    assert shell("tail", name) == expected
    assert shell("tail", name, "--records", "1") == '"x, ]"\n'
    assert shell("tail", name, "--offset", "-1") == expected
    assert "--records" in shell.complaint("tail", name, "--bytes", "3", expect=2)


def test_bytes_are_printed_as_they_are(shell: Shell, name: str) -> None:
    data = bytes(range(256)) * 10
    shell("create", name)
    shell("append", name, typed=data)
    assert shell.run("read", name).stdout_bytes == data
    assert shell.run("tail", name).stdout_bytes == data[-1024:]
    assert shell.run("tail", name, "-c", "3").stdout_bytes == data[-3:]
    assert shell.run("tail", name, "-c", "99999").stdout_bytes == data
    assert "--bytes" in shell.complaint("tail", name, "-n", "3", expect=2)


def test_lines_are_appended_one_by_one(shell: Shell, client: Client, name: str, tmp_path: Path) -> None:
    shell("create", name, "-t", JSON)
    lines = tmp_path / "lines"
    lines.write_text("".join(f"[{number}]\n" for number in range(700)) + "\n  \nnull")
    offset = shell("append", name, "--file", str(lines), "--lines").strip()
    assert client.stream(name).head().next_offset == offset
    assert client.stream(name).head().record_next == 701
    assert shell("tail", name, "-n", "2") == "[699]\nnull\n"
    text = f"{name}-text"
    shell("create", text, "-t", "text/plain")
    shell("append", text, "--lines", typed="one\n\ntwo")
    messages = list(client.stream(text).bootstrap())[1:]
    assert [message.value for message in messages] == [b"one\n", b"\n", b"two"]  # type: ignore[union-attr]


def test_a_line_that_is_not_json_is_named_and_what_came_before_it_is_stored(
    shell: Shell, client: Client, name: str
) -> None:
    shell("create", name, "-t", JSON)
    said = shell.complaint("append", name, "--lines", typed="1\n2\nthree\n4\n")
    assert "stored only the first 2 lines of the input" in said
    assert "line 3 is not JSON" in said
    assert client.stream(name).read().values() == [1, 2]


def test_a_large_input_goes_in_pieces(shell: Shell, client: Client, name: str, tmp_path: Path) -> None:
    large = tmp_path / "large"
    large.write_bytes(os.urandom(1 << 20) * 18)
    shell("create", name)
    shell("append", name, "--file", str(large), "--close")
    info = client.stream(name).head()
    assert (int(info.next_offset), info.closed) == (18 << 20, True)
    assert b"".join(chunk.data for chunk in client.stream(name).read_all()) == large.read_bytes()
    shell("create", f"{name}-json", "-t", JSON)
    assert "--lines" in shell.complaint("append", f"{name}-json", "--file", str(large))


def test_an_empty_input_is_no_append_but_may_close(shell: Shell, client: Client, name: str) -> None:
    shell("create", name)
    assert "empty" in shell.complaint("append", name, typed="")
    assert "empty" in shell.complaint("append", name, "--lines", typed="")
    shell("append", name, "--close", typed="")
    assert client.stream(name).head().closed


def test_head_is_for_people_and_for_programs(shell: Shell, name: str) -> None:
    shell("create", name, "-t", "text/plain")
    shell("append", name, "12345")
    text = shell("head", name)
    assert "content type    text/plain\n" in text
    assert "closed          no\n" in text
    fields = json.loads(shell("head", name, "--json"))
    assert fields["next_offset"] == "00000000000000000005"
    assert fields["closed"] is False


def test_streams_and_buckets_are_listed(shell: Shell, name: str) -> None:
    bucket = name.replace("/", "-")
    for stream in ("a1", "a2", "b"):
        shell("create", f"{bucket}/{stream}", "-t", "text/plain")
    assert shell("ls", bucket) == "a1\na2\nb\n"
    assert shell("ls", bucket, "--prefix", "a") == "a1\na2\n"
    assert shell("ls", bucket, "-l").splitlines()[0] == "a1\topen\t00000000000000000000\ttext/plain"
    rows = [json.loads(line) for line in shell("ls", bucket, "--json").splitlines()]
    assert [row["stream_id"] for row in rows] == ["a1", "a2", "b"]
    assert bucket in shell("ls").splitlines()
    assert f"{bucket}\t3" in shell("ls", "-l").splitlines()
    buckets = [json.loads(line) for line in shell("ls", "--json").splitlines()]
    assert {"bucket_id": bucket, "streams": 3} in buckets
    assert "ursula create missing-bucket" in shell.complaint("ls", "missing-bucket")
    assert "not a bucket" in shell.complaint("ls", name, expect=2)


def test_attributes_are_set_and_cleared(shell: Shell, name: str) -> None:
    shell("create", name)
    shell("attrs", "set", name, '{"title": "Grüße"}')
    assert "Grüße" in shell("attrs", "get", name)
    shell("attrs", "clear", name)
    assert json.loads(shell("attrs", "get", name)) == {}
    assert "not JSON" in shell.complaint("attrs", "set", name, "{", expect=2)


def test_snapshots_are_published_and_read(shell: Shell, name: str, tmp_path: Path) -> None:
    shell("create", name)
    offset = shell("append", name, "one").strip()
    assert "snapshot publish" in shell.complaint("snapshot", "read", name)
    assert shell("snapshot", "publish", name, "-o", offset, "--keep", typed="state").startswith(offset)
    assert shell("snapshot", "read", name) == shell("snapshot", "read", name, "-o", offset) == "state"
    assert shell("read", name) == "one"
    file, saved = tmp_path / "file", tmp_path / "saved"
    file.write_text("newer")
    offset = shell("append", name, "two").strip()
    shell("snapshot", "publish", name, "-o", offset, "--file", str(file))
    assert shell("snapshot", "read", name, "--output", str(saved)) == ""
    assert saved.read_text() == "newer"
    assert shell("read", name) == ""


def test_the_feed_is_printed_line_by_line(shell: Shell, name: str) -> None:
    bucket = name.replace("/", "-")
    shell("create", f"{bucket}/s", "-t", JSON)
    shell("append", f"{bucket}/s", "[1, 2]")
    rows = [json.loads(line) for line in shell("feed", bucket).splitlines()]
    assert [(row["kind"], row.get("value")) for row in rows] == [
        ("create", None),
        ("append", 1),
        ("append", 2),
    ]
    assert len(shell("feed", bucket, "--offset", rows[0]["position"]).splitlines()) == 2
    assert shell("feed", bucket, "-o", "now") == ""


def test_a_server_that_is_not_there_is_told_with_what_to_do(name: str) -> None:
    said = Shell("http://127.0.0.1:9").complaint("read", name)
    assert said.count("\n") == 1
    assert "http://127.0.0.1:9" in said
    assert "ursula serve" in said
    assert "--url" in said
    assert "http://" in Shell("localhost").complaint("read", name, expect=2)


def test_a_deleted_stream_is_brought_back(shell: Shell, client: Client, name: str) -> None:
    client.stream(name).create("text/plain", body="first")
    first = client.stream(name).head().incarnation
    shell("delete", name)
    assert shell("undelete", name) == f"stream {name} is back, up to {5:020}\n"
    assert shell("read", name) == "first"
    complaint = shell.complaint("undelete", name)
    assert "stream_exists" in complaint
    assert "the stream that has the name now" in complaint
    shell("delete", name)
    client.stream(name).create("text/plain", body="second")
    shell("delete", name)
    found = json.loads(shell("undelete", name, "--incarnation", first, "--json"))
    assert (found["incarnation"], found["closed"]) == (first, False)
    assert shell("read", name) == "first"
    complaint = shell.complaint("undelete", f"{name}-never")
    assert "stream_not_found" in complaint
    assert "cold.keep_replaced" in complaint
    assert "write bucket/stream" in shell.complaint("undelete", "nothing", expect=2)


def test_the_server_is_told_to_flush(shell: Shell, client: Client, name: str) -> None:
    client.stream(name).create("text/plain", body="x")
    position = int(shell("flush").removeprefix("group 0 is stored up to "))
    assert position > 0
    (group,) = json.loads(shell("flush", "--json"))["groups"]
    assert group["group"] == 0
    assert group["position"] >= position
    assert "ursula serve" in Shell("http://127.0.0.1:9").complaint("flush")


def test_whatever_json_the_server_takes_is_printed(shell: Shell, client: Client, name: str) -> None:
    digits, deep = "7" * 5000, "[" * 900 + "]" * 900
    client.stream(name).create(JSON, body=f"[{digits},{deep}]", closed=True)
    assert shell("read", name) == f"{digits}\n{deep}\n"
    assert shell("tail", "-f", name, "--offset", "-1") == f"{digits}\n{deep}\n"
    assert shell("tail", name, "-n", "2") == f"{digits}\n{deep}\n"
    assert f'"value":{digits}' in shell("feed", name.partition("/")[0])
