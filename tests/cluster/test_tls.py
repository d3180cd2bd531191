"""TLS from the secret of a cluster: who gets in, and who does not."""

import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from aetcd import rpc
from tests.etcd import etcd_path, free_ports

from ursula.cluster.authority import write_certificate
from ursula.cluster.failures import ClusterRefused
from ursula.cluster.member.etcd_folder import EtcdFolder
from ursula.cluster.member.etcd_process import EtcdProcess
from ursula.cluster.member.etcd_program import find_program
from ursula.cluster.member.member_settings import EtcdCommand, MemberSettings
from ursula.cluster.tls import TlsFiles, choose_tls
from ursula.etcd.client import EtcdClient, EtcdUnavailable

pytestmark = pytest.mark.anyio

SECRET = "a secret that is long enough"


def made_from(secret: str, folder: Path, host: str = "127.0.0.1") -> TlsFiles:
    files = choose_tls(None, secret, [host], folder)
    assert files is not None
    return files


@asynccontextmanager
async def etcd_with(tls: TlsFiles, folder: Path) -> AsyncIterator[str]:
    """The address of a running etcd."""
    peer, client = free_ports(2)
    settings = MemberSettings(1, "test", "127.0.0.1", "127.0.0.1", client, peer, (), True)
    command = EtcdCommand(settings, find_program(etcd_path()), EtcdFolder(folder), tls)
    process = await EtcdProcess.start(command.to_begin("1", client))
    try:
        yield settings.address
    finally:
        await process.stop()


async def write_to(address: str, credentials: grpc.ChannelCredentials | None, seconds: float) -> None:
    client = EtcdClient([address], credentials)
    try:
        await client.call(lambda member: member.kv.Put, rpc.PutRequest(key=b"a", value=b"1"), seconds)
    finally:
        await client.close()


async def test_only_a_certificate_from_the_same_secret_gets_in(tmp_path: Path) -> None:
    async with etcd_with(made_from(SECRET, tmp_path / "one"), tmp_path / "etcd") as address:
        await write_to(address, made_from(SECRET, tmp_path / "two").credentials(), 30)
        for credentials in (
            made_from(SECRET + "!", tmp_path / "three").credentials(),
            grpc.ssl_channel_credentials((tmp_path / "one" / "authority.pem").read_bytes()),
            None,
        ):
            with pytest.raises(EtcdUnavailable):
                await write_to(address, credentials, 1)


async def test_a_certificate_is_for_the_names_and_addresses_of_its_node(tmp_path: Path) -> None:
    own = made_from(SECRET, tmp_path / "own")
    async with etcd_with(own, tmp_path / "etcd") as address:
        await write_to(address.replace("127.0.0.1", "localhost"), own.credentials(), 30)
    other = TlsFiles(tmp_path / "certificate", tmp_path / "key", tmp_path / "authority")
    write_certificate(SECRET, ["10.1.2.3", "node.example"], other.certificate, other.key, other.authority)
    async with etcd_with(other, tmp_path / "other") as address:
        with pytest.raises(EtcdUnavailable, match="Hostname Verification"):
            await write_to(address, own.credentials(), 3)


def test_files_are_for_this_user_alone_and_have_no_key_of_the_authority(tmp_path: Path) -> None:
    files = made_from(SECRET, tmp_path / "tls")
    for path in (files.certificate, files.key, files.authority):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "tls").stat().st_mode) == 0o700
    keys = [path.name for path in (tmp_path / "tls").iterdir() if b"PRIVATE" in path.read_bytes()]
    assert keys == [files.key.name]


def test_a_short_secret_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ClusterRefused, match="at least 16 characters"):
        made_from("short", tmp_path)


def test_without_files_and_secret_there_is_no_tls(tmp_path: Path) -> None:
    assert choose_tls(None, "", ["127.0.0.1"], tmp_path) is None


def test_given_files_are_used_and_must_be_readable(tmp_path: Path) -> None:
    given = made_from(SECRET, tmp_path / "given")
    assert choose_tls(given, SECRET, ["10.1.2.3"], tmp_path / "unused") == given
    assert not (tmp_path / "unused").exists()
    with pytest.raises(ClusterRefused, match=r"missing\.pem: No such file"):
        choose_tls(replace(given, key=tmp_path / "missing.pem"), "", [], tmp_path)
