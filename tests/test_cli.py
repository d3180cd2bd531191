"""The `ursula` command, as a person at a shell sees it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cluster.three_nodes import free_blocks
from typer.testing import CliRunner

from ursula import __version__
from ursula.cli import app, main
from ursula.config import KEYS, Settings, StartRefused


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working folder without a configuration, and none in the environment."""
    monkeypatch.chdir(tmp_path)
    for name in os.environ:
        if name.startswith("URSULA_"):
            monkeypatch.delenv(name)


def run(*arguments: str, columns: int = 200) -> str:
    result = CliRunner(env={"COLUMNS": str(columns), "TERM": "dumb"}).invoke(app, arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def spawned(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", "-m", "ursula", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_the_version_is_printed() -> None:
    assert run("--version") == f"ursula {__version__}\n"


@pytest.mark.parametrize("command", [("serve",), ("config", "show")])
def test_the_help_names_every_flag_with_its_text_and_default(command: tuple[str, ...]) -> None:
    text = run(*command, "--help")
    assert "Examples" in text
    assert "--config" in text
    for setting in KEYS.values():
        if setting.flag:
            (line,) = [line for line in text.splitlines() if line.startswith(f"│ {setting.flag} ")]
            assert f"{setting.kind.metavar} " in line
            assert f"{setting.doc} Default: {setting.default} " in line


def test_config_show_prints_each_value_with_where_it_came_from(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("my.toml").write_text("[limits]\nappend_bytes = '8MiB'\n")
    monkeypatch.setenv("URSULA_HTTP__LONG_POLL", "500ms")
    text = run("config", "show", "--config", "my.toml", "--listen", "[::1]:0")
    rows = {line.split()[0]: line.split(maxsplit=2)[1:] for line in text.splitlines()[1:]}
    assert list(rows) == list(KEYS)
    shown = {name: [part.strip() for part in row] for name, row in rows.items()}
    assert shown["limits.append_bytes"] == ["8MiB", "file my.toml"]
    assert shown["http.long_poll"] == ["500ms", "environment URSULA_HTTP__LONG_POLL"]
    assert shown["server.listen"] == ["[::1]:0", "flag --listen"]
    assert shown["server.advertise"] == ["[::1]:0", "default"]
    assert shown["cors.origins"] == ["*", "default"]


def test_config_show_does_not_fold_long_values_in_a_pipe() -> None:
    folder = "/" + "x" * 300
    assert folder in run("config", "show", "--data-dir", folder, columns=80)


def test_config_show_prints_json() -> None:
    shown = json.loads(run("config", "show", "--json", "--node-id", "3"))
    assert list(shown) == list(KEYS)
    assert shown["server.node_id"] == {"value": 3, "from": "flag --node-id"}
    assert shown["server.listen"] == {"value": "127.0.0.1:4437", "from": "default"}
    assert shown["limits.append_bytes"]["value"] == 32 << 20
    assert shown["cors.origins"]["value"] == ["*"]


def test_every_flag_of_a_setting_reaches_it() -> None:
    given = {
        "--node-id": "9",
        "--listen": "h:1",
        "--advertise": "h:2",
        "--data-dir": "/d",
        "--log": "memory",
        "--log-level": "debug",
        "--log-format": "json",
    }
    shown = json.loads(run("config", "show", "--json", *(word for pair in given.items() for word in pair)))
    by_flag = {setting.flag: str(shown[name]["value"]) for name, setting in KEYS.items() if setting.flag}
    assert by_flag == given


def test_warnings_of_config_show_go_to_standard_error() -> None:
    Path("ursula.toml").write_text("[storage]\nhot_payload_backend = 'memory'\n")
    result = CliRunner().invoke(app, ["config", "show", "--json"])
    json.loads(result.stdout)
    assert result.stderr.startswith("ursula: warning: storage.hot_payload_backend (file ./ursula.toml)")


@pytest.mark.parametrize("command", [("serve",), ("config", "show")])
def test_a_refused_configuration_is_one_line_and_exit_code_2(command: tuple[str, ...]) -> None:
    finished = spawned(*command, "--log", "tape")
    assert finished.returncode == 2
    assert finished.stderr == 'ursula: server.log = "tape" (flag --log): expected one of file, memory\n'
    assert finished.stdout == ""


def test_a_refused_start_is_one_line_and_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse() -> None:
        raise StartRefused("the folder ./data is in use\nby another process; stop it first")

    monkeypatch.setattr("ursula.cli.app", refuse)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    assert capsys.readouterr().err == (
        "ursula: the folder ./data is in use by another process; stop it first\n"
    )


def test_the_module_runs_like_the_command() -> None:
    finished = spawned("config", "show", "--json")
    assert finished.returncode == 0, finished.stderr
    assert json.loads(finished.stdout)["server.log"]["value"] == Settings().server.log


def test_a_job_without_spark_says_how_to_install_it_and_its_help_needs_none() -> None:
    without = "import sys; sys.modules['pyspark'] = None; from ursula.cli import main; main()"
    command = [sys.executable, "-W", "error", "-c", without, "pipeline", "usage"]
    failed = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert failed.returncode == 1
    assert failed.stderr.count("\n") == 1
    assert failed.stderr.startswith("ursula: ")
    assert "pip install -e '.[spark]'" in failed.stderr
    helped = subprocess.run([*command, "--help"], capture_output=True, text=True, timeout=60)
    assert helped.returncode == 0, helped.stderr


def test_a_node_of_a_cluster_without_its_libraries_says_how_to_install_them(tmp_path: Path) -> None:
    without = "import sys; sys.modules['aetcd'] = None; from ursula.cli import main; main()"
    command = [
        sys.executable,
        "-W",
        "error",
        "-c",
        without,
        "serve",
        "--listen",
        f"127.0.0.1:{free_blocks(1)[0]}",
    ]
    command += ["--data-dir", str(tmp_path / "data")]
    environment = {**os.environ, "URSULA_CLUSTER__NAME": "test", "URSULA_COLD__SHARED_FS": "true"}
    failed = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert failed.returncode == 1
    problem = failed.stderr.splitlines()[-1]
    assert problem.startswith("ursula: a cluster needs aetcd")
    assert "pip install -e '.[cluster]'" in problem
