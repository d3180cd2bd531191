"""The settings of a node's member, and the command that starts it."""

import socket
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address

from ..failures import ClusterRefused
from ..tls import TlsFiles
from .etcd_folder import EtcdFolder
from .etcd_program import EtcdProgram
from .member_list import MemberList, member_name


@dataclass(frozen=True)
class MemberSettings:
    """A member as the node's configuration describes it."""

    node_id: int
    cluster_name: str
    listen_host: str
    advertise_host: str
    client_port: int
    peer_port: int
    others: tuple[str, ...]
    """Where the etcds of the other nodes listen for clients, as host:port."""
    is_bootstrap: bool

    @property
    def name(self) -> str:
        """The name of the member."""
        return member_name(self.node_id)

    @property
    def address(self) -> str:
        """Where clients reach the member."""
        return address(self.advertise_host, self.client_port)


@dataclass(frozen=True)
class EtcdCommand:
    """Command lines for one node's etcd. Only the first start of a member uses what it says of others."""

    settings: MemberSettings
    program: EtcdProgram
    folder: EtcdFolder
    tls: TlsFiles | None

    @property
    def peer_url(self) -> str:
        """Where other members reach this one."""
        return self._url(self.settings.advertise_host, self.settings.peer_port)

    def to_begin(self, attempt: str, private_port: int) -> list[str]:
        """Begin a cluster of one member, which only this machine can reach as a client."""
        client = self._url("127.0.0.1", private_port)
        token = f"{self.settings.cluster_name}-{attempt}"
        first = [f"{self.settings.name}={self.peer_url}"]
        return [*self._command(client, client, first), f"--initial-cluster-token={token}", _state("new")]

    def to_join(self, number: int, members: MemberList) -> list[str]:
        """Join as the member of this number, which the others have added."""
        known = [
            f"{self._name_of(number, member.number, member.name)}={url}"
            for member in members.members
            for url in member.peer_urls
        ]
        return [*self._public(known), _state("existing")]

    def to_restart(self) -> list[str]:
        """Start from the data that is there. If there is none, this fails rather than begin a cluster."""
        return [*self._public([f"{self.settings.name}={self.peer_url}"]), _state("existing")]

    def _name_of(self, own: int, number: int, name: str) -> str:
        return self.settings.name if number == own else name or f"member-{number:x}"

    def _public(self, initial_cluster: Sequence[str]) -> list[str]:
        settings = self.settings
        listened = self._url(_numeric(settings.listen_host), settings.client_port)
        advertised = self._url(settings.advertise_host, settings.client_port)
        return self._command(listened, advertised, initial_cluster)

    def _command(self, listened: str, advertised: str, initial_cluster: Sequence[str]) -> list[str]:
        settings = self.settings
        return [
            self.program.path,
            f"--name={settings.name}",
            f"--data-dir={self.folder.data}",
            f"--listen-client-urls={listened}",
            f"--advertise-client-urls={advertised}",
            f"--listen-peer-urls={self._url(_numeric(settings.listen_host), settings.peer_port)}",
            f"--initial-advertise-peer-urls={self.peer_url}",
            f"--initial-cluster={','.join(initial_cluster)}",
            *self.program.flags(),
            *([] if self.tls is None else self.tls.etcd_flags()),
        ]

    def _url(self, host: str, port: int) -> str:
        return f"{'http' if self.tls is None else 'https'}://{address(host, port)}"


def address(host: str, port: int) -> str:
    """A host and a port as one text."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _state(state: str) -> str:
    return f"--initial-cluster-state={state}"


def _numeric(host: str) -> str:
    """A host to listen on: etcd takes only addresses there."""
    try:
        return str(ip_address(host))
    except ValueError:
        pass
    try:
        return socket.gethostbyname(host)
    except OSError as error:
        raise ClusterRefused(f"cannot listen on {host}: {error.strerror}") from None
