"""Settings: where they come from, how values are written, and what keeps the server from starting."""

import re
from pathlib import Path
from typing import Any

import pytest

from ursula import config
from ursula.config import KEYS, Address, ConfigRefused, LogKind, Settings, StartRefused, load

PAGE = Path(__file__).parent.parent / "docs" / "configuration.md"
URSULA_SINGLE_NODE = """\
version = 1

[server]
node_id = 1
listen = "127.0.0.1:4437"
advertise = "127.0.0.1:4437"
data_dir = "data"
hot_payload_backend = "rocksdb"
write_only_leader = false

[cold]
backend = "fs"
"""
"""The configuration in the "Run locally" chapter of the original Ursula's documentation."""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder without a configuration, and none of the machine."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(config.loading, "FILES_SEARCHED", ("./ursula.toml", "etc/ursula.toml"))
    return tmp_path


def from_toml(text: str, **environ: str) -> config.LoadedConfig:
    Path("given.toml").write_text(text, encoding="utf-8")
    return load(Path("given.toml"), environ, {})


def refusal(text: str = "", **environ: str) -> str:
    with pytest.raises(ConfigRefused) as refused:
        from_toml(text, **environ)
    assert len(str(refused.value).splitlines()) == 1
    return str(refused.value)


def one(name: str, written: str) -> Any:
    section, key = name.split(".")
    return KEYS[name].value(from_toml(f"[{section}]\n{key} = {written}").settings)


def test_without_any_source_everything_is_the_default() -> None:
    loaded = load(None, {}, {})
    assert loaded.settings == Settings()
    assert set(loaded.origins.values()) == {"default"}
    assert loaded.warnings == []


def test_the_defaults_are_those_of_the_protocol() -> None:
    settings = Settings()
    assert settings.server.listen == Address("127.0.0.1", 4437)
    assert settings.server.data_dir == Path("data")
    assert settings.server.log == "file"
    assert settings.http.long_poll == 3.0
    assert settings.http.reads == "linearizable"
    assert settings.cors.origins == ("*",)
    assert settings.limits.append_bytes == 32 * 1024 * 1024
    assert settings.limits.inflight_bytes == 256 * 1024 * 1024


def test_the_defaults_of_the_store_are_those_of_the_protocol() -> None:
    cold = Settings().cold
    assert (cold.backend, cold.root, cold.shared_fs, cold.keep_trimmed) == ("fs", "./data/cold", False, False)
    assert (cold.flush_size, cold.flush_interval) == (8 << 20, 60.0)
    assert (cold.max_hot_bytes, cold.cache_bytes, cold.keep_replaced) == (256 << 20, 256 << 20, 86400.0)
    assert Settings().limits.spool_bytes == 8 << 30


def test_objects_are_in_the_data_folder_unless_another_root_is_set() -> None:
    assert from_toml("[server]\ndata_dir = '/a'").settings.cold.root == "/a/cold"
    assert from_toml("[server]\ndata_dir = '/a'\n[cold]\nroot = '/b'").settings.cold.root == "/b"
    assert from_toml("[cold]\nbackend = 's3'\ns3_bucket = 'streams'").settings.cold.root == ""


def test_flags_override_the_environment_which_overrides_the_file() -> None:
    Path("ursula.toml").write_text("[server]\nnode_id = 2\nlisten = '1.1.1.1:1'\ndata_dir = '/a'\n")
    environ = {"URSULA_SERVER__LISTEN": "2.2.2.2:2", "URSULA_SERVER__DATA_DIR": "/b"}
    loaded = load(None, environ, {"server.data_dir": "/c", "server.log": None})
    server = loaded.settings.server
    assert (server.node_id, server.listen, server.data_dir) == (2, ("2.2.2.2", 2), Path("/c"))
    assert loaded.origins["server.node_id"] == "file ./ursula.toml"
    assert loaded.origins["server.listen"] == "environment URSULA_SERVER__LISTEN"
    assert loaded.origins["server.data_dir"] == "flag --data-dir"
    assert loaded.origins["server.log"] == "default"


def test_the_named_file_is_used_instead_of_the_searched_ones() -> None:
    Path("ursula.toml").write_text("[server]\nnode_id = 2\n")
    assert from_toml("[server]\nnode_id = 3\n").settings.server.node_id == 3


def test_the_first_file_found_is_the_only_one_read(folder: Path) -> None:
    (folder / "etc").mkdir()
    (folder / "etc" / "ursula.toml").write_text("[server]\nnode_id = 5\nlog = 'memory'\n")
    assert load(None, {}, {}).settings.server.node_id == 5
    Path("ursula.toml").write_text("[server]\nnode_id = 2\n")
    server = load(None, {}, {}).settings.server
    assert (server.node_id, server.log) == (2, "file")


def test_a_named_file_that_is_missing_is_refused() -> None:
    with pytest.raises(ConfigRefused, match=r"cannot read .* nowhere\.toml: No such file"):
        load(Path("nowhere.toml"), {}, {})


@pytest.mark.parametrize(("content", "why"), [(b"[server\n", "not TOML.*line 1"), (b"\xff", "not UTF-8")])
def test_a_file_that_cannot_be_parsed_is_refused_with_its_name(content: bytes, why: str) -> None:
    Path("ursula.toml").write_bytes(content)
    with pytest.raises(ConfigRefused, match=rf"\./ursula\.toml: it is {why}"):
        load(None, {}, {})


def test_the_advertised_address_is_the_listen_address_by_default() -> None:
    assert from_toml("[server]\nlisten = '[::1]:80'").settings.server.advertise == ("::1", 80)
    server = from_toml("[server]\nadvertise = 'node-1:80'").settings.server
    assert (str(server.listen), str(server.advertise)) == ("127.0.0.1:4437", "node-1:80")


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("127.0.0.1:0", ("127.0.0.1", 0)),
        ("localhost:65535", ("localhost", 65535)),
        ("[::1]:4437", ("::1", 4437)),
        ("[fe80::1%eth0]:1", ("fe80::1%eth0", 1)),
    ],
)
def test_an_address_is_a_host_and_a_port_and_shows_as_it_was_written(
    written: str, expected: tuple[str, int]
) -> None:
    address = one("server.listen", f'"{written}"')
    assert address == expected
    assert str(address) == written


@pytest.mark.parametrize(
    "written",
    [
        "4437",
        "'4437'",
        "':4437'",
        "'::1:4437'",
        "'host:65536'",
        "'host:x'",
        "'http://h:1'",
        "'[h]:1'",
        "'h:٣'",
    ],
)
def test_anything_else_is_not_an_address(written: str) -> None:
    message = refusal(f"[server]\nlisten = {written}")
    assert "(file given.toml): expected host:port" in message


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("1", 1),
        ("'4096'", 4096),
        ("'8KiB'", 8192),
        ("'8MiB'", 8 << 20),
        ("'2 GiB'", 2 << 30),
        ("'8kB'", 8000),
        ("'8MB'", 8_000_000),
        ("'1GB'", 10**9),
    ],
)
def test_a_size_is_bytes_or_has_a_unit(written: str, expected: int) -> None:
    assert one("limits.sse_bytes", written) == expected


@pytest.mark.parametrize(
    "written", ["0", "-1", "1.5", "true", "'8mb'", "'1_000'", "'+5'", "'8MiB\\n'", "''", "[]"]
)
def test_anything_else_is_not_a_size(written: str) -> None:
    assert "limits.sse_bytes = " in refusal(f"[limits]\nsse_bytes = {written.replace(chr(39), chr(34))}")


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("2", 2.0),
        ("0.5", 0.5),
        ("'60'", 60.0),
        ("'60s'", 60.0),
        ("'1.5s'", 1.5),
        ("'500ms'", 0.5),
        ("'5m'", 300.0),
        ("'24h'", 86400.0),
    ],
)
def test_a_duration_is_seconds_or_has_a_unit(written: str, expected: float) -> None:
    assert one("http.long_poll", written) == expected


@pytest.mark.parametrize(
    "written", ["0", "-1", "true", "nan", "inf", "'5d'", "'-5s'", "'1e3'", "'9999h'", "''"]
)
def test_anything_else_is_not_a_duration(written: str) -> None:
    assert 'or with a unit as in "500ms"' in refusal(f"[http]\nlong_poll = {written}")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("limits.sse_bytes", 4096),
        ("limits.sse_bytes", 4097),
        ("http.long_poll", 0.25),
        ("http.long_poll", 90.5),
        ("cold.keep_replaced", 7200.0),
        ("cold.cache_bytes", 0),
        ("cold.keep_trimmed", True),
    ],
)
def test_a_shown_value_reads_back_as_itself(name: str, value: float) -> None:
    kind = KEYS[name].kind
    assert kind.read(kind.show(value)) == value


@pytest.mark.parametrize("name", KEYS)
def test_the_same_text_means_the_same_in_a_file_in_the_environment_and_as_a_flag(name: str) -> None:
    setting = KEYS[name]
    text = setting.kind.show(setting.value(Settings()))
    section, key = name.split(".")
    sources = [
        from_toml(f'[{section}]\n{key} = "{text}"'),
        load(None, {setting.variable: text}, {}),
        load(None, {}, {name: text}),
    ]
    for loaded in sources:
        assert loaded.settings == Settings()
        assert loaded.origins[name] != "default"


@pytest.mark.parametrize("written", ["1", "0", "'yes'", "''", "'True'"])
def test_a_switch_is_true_or_false(written: str) -> None:
    assert one("cold.keep_trimmed", "true") is one("cold.keep_trimmed", "'true'") is True
    assert "expected true or false" in refusal(f"[cold]\nkeep_trimmed = {written}")


def test_only_the_cache_may_have_size_0() -> None:
    assert one("cold.cache_bytes", "0") == one("cold.cache_bytes", "'0'") == 0
    assert "1 or more" in refusal("[cold]\nflush_size = 0")
    assert "0 or more" in refusal("[cold]\ncache_bytes = false")


@pytest.mark.parametrize(
    "written", ["s3.example.org", "ftp://a", "http://a/b", "https://user:word@a", "http://"]
)
def test_an_endpoint_is_a_url_without_a_path(written: str) -> None:
    assert one("cold.s3_endpoint", "'http://127.0.0.1:8333/'") == "http://127.0.0.1:8333"
    assert "expected http://host:port or https://host" in refusal(f"[cold]\ns3_endpoint = '{written}'")


def test_s3_needs_a_bucket_and_a_key_needs_its_secret() -> None:
    assert refusal("[cold]\nbackend = 's3'") == ('cold.backend = "s3" needs a bucket: set cold.s3_bucket')
    assert "belong together" in refusal("[cold]\ns3_access_key_id = 'id'")
    assert "belong together" in refusal("[cold]\ns3_secret_access_key = 'hush'")
    assert "needs cold.s3_access_key_id" in refusal("[cold]\ns3_session_token = 'hush'")


def test_a_bucket_that_is_not_used_is_warned_about() -> None:
    (warning,) = from_toml("[cold]\ns3_bucket = 'streams'").warnings
    assert "objects go to ./data/cold, not to the bucket" in warning


def test_a_flush_that_never_gets_large_enough_is_warned_about() -> None:
    (warning,) = from_toml("[cold]\nflush_size = '1GiB'").warnings
    assert warning.startswith("cold.flush_size (1GiB) is more than cold.max_hot_bytes (256MiB)")


def test_a_secret_is_used_and_never_shown() -> None:
    keys = "s3_access_key_id = 'id'\ns3_secret_access_key = '$KEY'\ns3_session_token = 'hush'"
    settings = from_toml(f"[cold]\n{keys}", KEY="hush").settings
    assert (settings.cold.s3_secret_access_key.text, settings.cold.s3_session_token.text) == ("hush", "hush")
    assert "hush" not in repr(settings)
    for name in ("cold.s3_secret_access_key", "cold.s3_session_token"):
        assert KEYS[name].kind.show(KEYS[name].value(settings)) == "(not shown)"


@pytest.mark.parametrize("written", ["['hush']", "'$hush'", '"hush\\u0000"', "{ hush = 1 }"])
def test_a_wrong_secret_is_not_shown_either(written: str) -> None:
    message = refusal(f"[cold]\ns3_secret_access_key = {written}")
    assert message.startswith("cold.s3_secret_access_key (file given.toml): ")
    assert "hush" not in message


def test_origins_are_a_list_in_a_file_and_separated_by_commas_elsewhere() -> None:
    expected = ("https://a.example", "http://localhost:3000")
    assert one("cors.origins", "['https://a.example', 'http://localhost:3000']") == expected
    environ = {"URSULA_CORS__ORIGINS": "https://a.example, http://localhost:3000"}
    assert load(None, environ, {}).settings.cors.origins == expected
    assert one("cors.origins", "[]") == ()
    assert load(None, {"URSULA_CORS__ORIGINS": ""}, {}).settings.cors.origins == ()


@pytest.mark.parametrize(
    "written", ["[1]", "['https://a.example/']", "['a.example']", "5", "0", "[['*']]", "false"]
)
def test_anything_else_is_not_a_list_of_origins(written: str) -> None:
    assert "cors.origins = " in refusal(f"[cors]\norigins = {written}")


@pytest.mark.parametrize("kind", [LogKind.FILE, LogKind.MEMORY])
def test_the_log_is_chosen_by_its_word_in_a_file_the_environment_or_a_flag(kind: LogKind) -> None:
    assert one("server.log", f"'{kind}'") is kind
    assert load(None, {"URSULA_SERVER__LOG": str(kind)}, {}).settings.server.log is kind
    assert load(None, {}, {"server.log": str(kind)}).settings.server.log is kind


def test_a_wrong_value_is_refused_with_the_key_the_value_the_source_and_what_is_expected() -> None:
    assert refusal("[server]\nlog = 'tape'") == (
        'server.log = "tape" (file given.toml): expected one of file, memory'
    )
    assert refusal(URSULA_SERVER__NODE_ID="x") == (
        'server.node_id = "x" (environment URSULA_SERVER__NODE_ID): expected a whole number, 1 or more'
    )
    with pytest.raises(ConfigRefused, match=r"\(flag --log-level\): expected one of debug, info"):
        load(None, {}, {"logging.level": "loud"})


def test_a_value_with_line_breaks_is_still_one_line_of_message() -> None:
    refusal('[server]\nlog = """a\nb"""')


def test_a_wrong_value_that_is_overridden_does_not_matter() -> None:
    assert from_toml("[server]\nnode_id = 'x'", URSULA_SERVER__NODE_ID="4").settings.server.node_id == 4


@pytest.mark.parametrize("written", ["true", "2", "'1'", "1.0"])
def test_the_version_of_the_file_must_be_one(written: str) -> None:
    assert from_toml("version = 1").settings == Settings()
    assert refusal(f"version = {written}").endswith("(file given.toml): expected 1")


def test_an_unknown_key_is_refused_with_the_nearest_known_one() -> None:
    assert refusal("[server]\nlisten_ = 1") == (
        "unknown key server.listen_ (file given.toml): did you mean server.listen?"
    )
    assert "did you mean limits.append_bytes?" in refusal("[limits]\nappend_byte = 1")
    assert "did you mean server.listen?" in refusal("listen = 'x'")
    assert "did you mean version?" in refusal("versoin = 1")
    assert "did you mean server.data_dir?" in refusal(URSULA_SERVER__DATADIR="x")


def test_an_unknown_key_that_resembles_nothing_is_refused_with_those_of_its_section() -> None:
    assert refusal("[cors]\nxyzzy = 1").endswith("known keys are cors.origins")
    assert "known keys are server.node_id, " in refusal("xyzzy = 1")


@pytest.mark.parametrize("section", ["xyzzy", "plugh"])
def test_an_unknown_section_is_refused_even_when_it_is_empty(section: str) -> None:
    known = "known sections are server, cold, cluster, http, cors, limits, logging"
    assert refusal(f"[{section}]") == f"unknown section [{section}] (file given.toml): {known}"
    assert known in refusal(**{f"URSULA_{section.upper()}__KEY": "1"})


def test_a_misspelled_section_is_refused_with_the_nearest_known_one() -> None:
    assert refusal("[limit]\nconnections = 1").endswith("did you mean limits?")


def test_a_section_must_be_a_section() -> None:
    assert refusal("server = 5") == "server = 5 (file given.toml): expected a section [server]"
    assert "unknown key storage" in refusal("storage = 5")


def test_variables_of_another_form_are_not_settings() -> None:
    environ = {"URSULA_FOO": "1", "URSULA_FAULT_ROUNDS": "50", "ursula_server__x": "1", "SERVER__LISTEN": "x"}
    assert load(None, environ, {}).settings == Settings()


def test_a_string_may_name_an_environment_variable() -> None:
    loaded = from_toml(
        "[server]\nnode_id = '$ID'\nlisten = '$WHERE'\n[cors]\norigins = ['$PAGE', 'http://b']\n",
        ID="7",
        WHERE="h:1",
        PAGE="http://a",
        URSULA_HTTP__LONG_POLL="$WAIT",
        WAIT="9s",
    )
    settings = loaded.settings
    assert (settings.server.node_id, str(settings.server.listen)) == (7, "h:1")
    assert settings.cors.origins == ("http://a", "http://b")
    assert settings.http.long_poll == 9.0
    assert loaded.origins["server.node_id"] == "file given.toml"


def test_a_missing_variable_is_refused_with_the_key_and_the_variable() -> None:
    assert refusal("[server]\ndata_dir = '$NOWHERE'") == (
        'server.data_dir = "$NOWHERE" (file given.toml): environment variable NOWHERE is not set'
    )


def test_the_message_about_a_wrong_value_of_a_variable_shows_both() -> None:
    assert 'server.node_id = "$ID", which is "x" (file' in refusal("[server]\nnode_id = '$ID'", ID="x")


@pytest.mark.parametrize(
    "text", ["hot_payload_backend = 'x'", "[server]\nhot_payload_backend = 1", "[storage]"]
)
def test_hot_payload_backend_is_ignored_with_a_warning(text: str) -> None:
    environ = {"URSULA_STORAGE__HOT_PAYLOAD_BACKEND": "memory"}
    loaded = from_toml(text, **environ)
    assert loaded.settings == Settings()
    assert loaded.warnings[-1] == (
        "storage.hot_payload_backend (environment URSULA_STORAGE__HOT_PAYLOAD_BACKEND)"
        " has no effect and is ignored; remove it"
    )
    assert len(loaded.warnings) == (2 if "hot" in text else 1)


def test_the_single_node_configuration_of_the_original_is_accepted_whole() -> None:
    loaded = from_toml(URSULA_SINGLE_NODE)
    assert loaded.settings == Settings()
    assert loaded.origins["server.write_only_leader"] == "file given.toml"
    assert ["hot_payload_backend" in warning for warning in loaded.warnings] == [True]


def test_write_only_leader_is_a_switch() -> None:
    assert Settings().server.write_only_leader is False
    assert one("server.write_only_leader", "true") is True
    assert "expected true or false" in refusal("[server]\nwrite_only_leader = 1")


def test_other_keys_of_storage_are_unknown() -> None:
    assert refusal("[storage]\nroot = 'x'").startswith("unknown key storage.root")


def test_an_append_limit_above_the_inflight_limit_is_warned_about() -> None:
    (warning,) = from_toml("[limits]\nappend_bytes = '1GiB'").warnings
    assert warning.startswith("limits.append_bytes (1GiB) is more than limits.inflight_bytes (256MiB)")


def test_a_folder_in_the_home_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/somewhere")
    assert one("server.data_dir", "'~/streams'") == Path("/somewhere/streams")
    assert "expected the path of a folder" in refusal("[server]\ndata_dir = '~nobody-by-that-name/x'")
    assert "expected the path of a folder" in refusal("[server]\ndata_dir = ''")


def test_a_refused_configuration_is_a_refused_start_with_an_exit_code_of_its_own() -> None:
    assert issubclass(ConfigRefused, StartRefused)
    assert (StartRefused.exit_code, ConfigRefused.exit_code) == (1, 2)


def test_the_page_on_configuration_lists_exactly_the_keys() -> None:
    rows = re.findall(r"^\| `(\w+\.\w+)` \| (.+?) \| (.*?) \| (.+) \|$", PAGE.read_text(), re.MULTILINE)
    expected = [(setting.name, setting.default, setting.flag or "", setting.doc) for setting in KEYS.values()]
    assert [(name, default.strip("`"), flag.strip("`"), doc) for name, default, flag, doc in rows] == expected


def test_the_examples_of_the_page_are_valid_and_one_shows_every_key_with_its_default() -> None:
    example, s3, cluster = re.findall(r"^```toml\n(.+?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    loaded = from_toml(example)
    assert loaded.settings == Settings()
    assert {name for name, origin in loaded.origins.items() if origin == "default"} == set()
    assert from_toml(s3, STREAMS_KEY="id", STREAMS_SECRET="hush").settings.cold.backend == "s3"
    assert from_toml(cluster, CLUSTER_SECRET="hush hush hush hush").settings.server.log is LogKind.ETCD


CLUSTER = """
[server]
node_id = 2
listen = "127.0.0.1:4447"
[cluster]
name = "prod"
routes = ["127.0.0.1:4437", "127.0.0.1:4457"]
[cold]
backend = "s3"
s3_bucket = "ursula-prod"
"""

ALONE = re.sub("routes = .*", "", CLUSTER)
"""The same without other nodes."""


def test_a_node_with_the_name_of_a_cluster_keeps_its_log_in_etcd() -> None:
    settings = from_toml(CLUSTER).settings
    assert settings.server.log is LogKind.ETCD
    assert settings.cluster.routes == (Address("127.0.0.1", 4437), Address("127.0.0.1", 4457))
    given = "127.0.0.1:1, [::1]:2"
    assert from_toml(CLUSTER, URSULA_CLUSTER__ROUTES=given).settings.cluster.routes[1] == Address("::1", 2)
    assert Settings().server.log is LogKind.FILE


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("CLUSTER__NAME", "a b", 'cluster.name = "a b": expected up to 64 letters'),
        ("COLD__BACKEND", "fs", "or cold.shared_fs = true if cold.root is a folder that all nodes share"),
        ("SERVER__LISTEN", "127.0.0.1:0", "in a cluster, server.listen needs a fixed port"),
        ("SERVER__LOG", "memory", "a cluster keeps its log in etcd"),
        ("CLUSTER__GROUPS", "65", "cluster.groups = 65: expected at most 64"),
        ("CLUSTER__ROUTES", "127.0.0.1:4447", "cluster.routes has the other nodes"),
        ("CLUSTER__ROUTES", "nowhere", "expected a list of host:port"),
        ("CLUSTER__ROUTES", "10.0.0.2:4437", "etcd's ports would be open to the network: set cluster.secret"),
        ("SERVER__LISTEN", "0.0.0.0:4437", "other nodes cannot reach 0.0.0.0:4437: set server.advertise"),
        (
            "CLUSTER__TLS_CERT",
            "/a.pem",
            "cluster.tls_cert, cluster.tls_key and cluster.tls_ca belong together",
        ),
    ],
)
def test_a_cluster_that_could_not_work_is_refused(name: str, value: str, message: str) -> None:
    assert message in refusal(CLUSTER, **{f"URSULA_{name}": value})


@pytest.mark.parametrize(
    ("listen", "advertise"),
    [
        ("0.0.0.0:4437", "127.0.0.1:4437"),
        ("[::]:4437", "[::1]:4437"),
        ("127.0.0.1:4437", "10.1.2.3:4437"),
        ("10.1.2.3:4437", "10.1.2.3:4437"),
        ("127.0.0.1:4437", "node.example:4437"),
    ],
)
def test_the_ports_of_etcd_are_never_open_without_tls(listen: str, advertise: str) -> None:
    given = {"URSULA_SERVER__LISTEN": listen, "URSULA_SERVER__ADVERTISE": advertise}
    assert "etcd's ports would be open to the network" in refusal(ALONE, **given)


@pytest.mark.parametrize("own", ["127.0.0.1:4437", "[::1]:4437", "localhost:4437"])
def test_a_cluster_on_loopback_needs_no_tls(own: str) -> None:
    assert from_toml(ALONE, URSULA_SERVER__LISTEN=own).settings.cluster.name == "prod"


def test_a_cluster_on_a_network_needs_a_secret_or_certificates() -> None:
    network = {"URSULA_SERVER__LISTEN": "0.0.0.0:4437", "URSULA_SERVER__ADVERTISE": "10.0.0.1:4437"}
    assert "open to the network" in refusal(CLUSTER, **network)
    assert from_toml(CLUSTER, **network, URSULA_CLUSTER__SECRET="a long secret of ours")
    files = {f"URSULA_CLUSTER__TLS_{kind}": f"/{kind}.pem" for kind in ("CERT", "KEY", "CA")}
    assert from_toml(CLUSTER, **network, **files)


def test_local_files_are_a_store_for_a_cluster_if_all_nodes_share_them() -> None:
    shared = {"URSULA_COLD__BACKEND": "fs", "URSULA_COLD__SHARED_FS": "true"}
    assert from_toml(CLUSTER, **shared, URSULA_COLD__ROOT="/mnt/shared")
