"""Which etcd is used, and with which flags."""

import os
from pathlib import Path

import pytest
from tests.etcd import etcd_path

from ursula.cluster.failures import ClusterRefused
from ursula.cluster.member.etcd_program import EtcdProgram, find_program, read_version


def program(folder: Path, version: str) -> str:
    """A program that says that it is etcd."""
    path = folder / "etcd"
    path.write_text(f"#!/bin/sh\necho etcd Version: {version}\n")
    path.chmod(0o755)
    return str(path)


def test_the_program_of_the_tests_is_good() -> None:
    found = find_program(etcd_path())
    assert found.path == os.path.abspath(etcd_path())
    assert found.version >= (3, 4, 0)


def test_without_a_path_the_program_is_on_the_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    expected = program(tmp_path, "3.5.16")
    assert find_program("").path == expected
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    with pytest.raises(ClusterRefused, match=r"package etcd-server, version 3\.5\.16 or newer"):
        find_program("")


def test_a_path_that_names_no_program_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ClusterRefused, match=r"cluster\.etcd_path names no program"):
        find_program(str(tmp_path / "etcd"))


@pytest.mark.parametrize("version", ["2.3.8", "3.3.25", "3.5.0", "3.5.1", "3.5.2", "unknown"])
def test_a_version_that_is_too_old_or_loses_data_is_refused(version: str, tmp_path: Path) -> None:
    with pytest.raises(ClusterRefused, match="3\\.5\\.16 or newer"):
        find_program(program(tmp_path, version))


@pytest.mark.parametrize(
    ("version", "is_warned"), [("3.4.23", True), ("3.5.15", True), ("3.5.16", False), ("3.6.0-rc.1", False)]
)
def test_an_older_version_is_warned_of(version: str, is_warned: bool, tmp_path: Path) -> None:
    found = find_program(program(tmp_path, version))
    assert (found.warning is not None and "is recommended" in found.warning) == is_warned


def test_what_a_version_says_of_itself_is_read() -> None:
    assert read_version("etcd Version: 3.4.23\nGit SHA: x\n") == (3, 4, 23)
    assert read_version("etcd Version: 3.6.0-alpha.0\n") == (3, 6, 0)
    assert read_version("no etcd at all") is None


def test_flags_depend_on_the_version() -> None:
    def about(version: tuple[int, int, int]) -> list[str]:
        flags = EtcdProgram("etcd", version).flags()
        return [flag for flag in flags if "catchup" in flag or "san" in flag]

    for old in ((3, 4, 23), (3, 5, 13)):
        assert about(old) == ["--experimental-peer-skip-client-san-verification=true"]
    assert about((3, 5, 16)) == [
        "--experimental-peer-skip-client-san-verification=true",
        "--experimental-snapshot-catchup-entries=500",
    ]
    assert about((3, 6, 0)) == [
        "--peer-skip-client-san-verification=true",
        "--snapshot-catchup-entries=500",
    ]


def test_every_version_is_told_its_limits() -> None:
    for version in ((3, 4, 23), (3, 5, 16), (3, 6, 0)):
        assert {
            "--pre-vote=true",
            "--snapshot-count=1000",
            f"--max-request-bytes={16 << 20}",
            f"--quota-backend-bytes={8 << 30}",
        } <= set(EtcdProgram("etcd", version).flags())
