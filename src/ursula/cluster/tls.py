"""TLS between etcd's members and their clients, from three files.

Members and clients show the same kind of certificate: whoever has one that the authority signed may read
and write everything. Without TLS, etcd's ports are open to everyone who reaches them, so the configuration
allows that on the loopback interface only (`config/loading.py`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import grpc

from .authority import write_certificate
from .failures import ClusterRefused


@dataclass(frozen=True)
class TlsFiles:
    """PEM files: a node's certificate and key, and the authority that signed it."""

    certificate: Path
    key: Path
    authority: Path

    def etcd_flags(self) -> list[str]:
        """The flags with which etcd shows this certificate and requires one of the same authority."""
        files = {"cert-file": self.certificate, "key-file": self.key, "trusted-ca-file": self.authority}
        return [
            *(f"--{prefix}{flag}={path}" for prefix in ("", "peer-") for flag, path in files.items()),
            "--client-cert-auth=true",
            "--peer-client-cert-auth=true",
        ]

    def credentials(self) -> grpc.ChannelCredentials:
        """What a client of etcd needs to be let in."""
        return grpc.ssl_channel_credentials(
            root_certificates=self.authority.read_bytes(),
            private_key=self.key.read_bytes(),
            certificate_chain=self.certificate.read_bytes(),
        )


def choose_tls(given: TlsFiles | None, secret: str, hosts: Sequence[str], folder: Path) -> TlsFiles | None:
    """The files that were given, or else files made from the secret; None if there is neither.

    `hosts` are the addresses and names by which others reach this node; `folder` is where files are written.
    """
    if given is not None:
        _check_readable(given)
        return given
    if secret:
        local = ["localhost", "127.0.0.1", "::1"]
        files = TlsFiles(folder / "node.pem", folder / "node.key", folder / "authority.pem")
        write_certificate(secret, [*hosts, *local], files.certificate, files.key, files.authority)
        return files
    return None


def _check_readable(files: TlsFiles) -> None:
    for path in (files.certificate, files.key, files.authority):
        try:
            path.read_bytes()
        except OSError as error:
            raise ClusterRefused(f"cannot read the TLS file {path}: {error.strerror}") from None
