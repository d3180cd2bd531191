"""What a node's configuration says about its etcd member: addresses, certificates, and the keys in etcd."""

from pathlib import Path

from ..config import ClusterSettings, ServerSettings
from .member.member_settings import MemberSettings, address
from .tls import TlsFiles, choose_tls


def member_settings(server: ServerSettings, cluster: ClusterSettings) -> MemberSettings:
    """The member of a node."""
    return MemberSettings(
        node_id=server.node_id,
        cluster_name=cluster.name,
        listen_host=server.listen.host,
        advertise_host=server.advertise.host,
        client_port=server.advertise.port + 1,
        peer_port=server.advertise.port + 2,
        others=tuple(address(route.host, route.port + 1) for route in cluster.routes),
        is_bootstrap=server.node_id == cluster.bootstrap_node_id,
    )


def tls_files(server: ServerSettings, cluster: ClusterSettings, folder: Path) -> TlsFiles | None:
    """The certificate of a node; one that is made from the secret is written to the folder."""
    given = None
    if cluster.tls_cert:
        given = TlsFiles(Path(cluster.tls_cert), Path(cluster.tls_key), Path(cluster.tls_ca))
    return choose_tls(given, cluster.secret.text, [server.advertise.host], folder)


def key_prefix(cluster: ClusterSettings) -> str:
    """What the keys of a cluster in etcd begin with."""
    return f"ursula/{cluster.name}/"
