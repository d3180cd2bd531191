"""A certificate authority that every node derives from the secret of the cluster.

Nodes need not exchange anything: the same secret gives the same key, and each node signs its own certificate
with it. The authority's key is never written anywhere. Whoever connects to a node sees a certificate and can
try out secrets against it, so deriving the key is slow on purpose, and a short secret is refused.
"""

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from ..cold.objects.fsync import replace_file
from .failures import ClusterRefused

SECRET_CHARACTERS_MIN = 16

_SALT = b"ursula cluster authority 1"
_COST, _BLOCK, _MEMORY_BYTES_MAX = 1 << 15, 8, 64 << 20
_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
"""The order of P-256."""
_NAME = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ursula cluster")])
_NOT_BEFORE = datetime(2000, 1, 1, tzinfo=UTC)
_NOT_AFTER = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
"""RFC 5280's date for a certificate that never expires. A clock that is wrong must not stop the cluster."""


def write_certificate(
    secret: str, hosts: Sequence[str], certificate: Path, key: Path, authority: Path
) -> None:
    """Sign a new certificate for these hosts, addresses or names, and write it, its key and its authority."""
    if len(secret) < SECRET_CHARACTERS_MIN:
        raise ClusterRefused(
            f"cluster.secret must have at least {SECRET_CHARACTERS_MIN} characters; "
            "`openssl rand -hex 32` makes a good one"
        )
    signer = _derived_key(secret)
    own_key = ec.generate_private_key(ec.SECP256R1())
    made = {
        authority: _authority_certificate(signer).public_bytes(serialization.Encoding.PEM),
        certificate: _node_certificate(signer, own_key, hosts).public_bytes(serialization.Encoding.PEM),
        key: own_key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    }
    try:
        for path, content in made.items():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_file(path, content, mode=0o600)
    except OSError as error:
        raise ClusterRefused(f"cannot write the TLS files to {key.parent}: {error.strerror}") from None


@lru_cache(maxsize=1)
def _derived_key(secret: str) -> ec.EllipticCurvePrivateKey:
    derived = hashlib.scrypt(
        secret.encode(), salt=_SALT, n=_COST, r=_BLOCK, p=1, maxmem=_MEMORY_BYTES_MAX, dklen=48
    )
    return ec.derive_private_key(1 + int.from_bytes(derived) % (_ORDER - 1), ec.SECP256R1())


def _authority_certificate(signer: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    usage = _key_usage(signs_certificates=True)
    return (
        _builder(signer, signer.public_key(), _NAME)
        .serial_number(1)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .sign(signer, hashes.SHA256())
    )


def _node_certificate(
    signer: ec.EllipticCurvePrivateKey, own_key: ec.EllipticCurvePrivateKey, hosts: Sequence[str]
) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ursula node")])
    purposes = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    return (
        _builder(signer, own_key.public_key(), name)
        .serial_number(x509.random_serial_number())
        .add_extension(x509.SubjectAlternativeName([_host_name(host) for host in hosts]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        .sign(signer, hashes.SHA256())
    )


def _builder(
    signer: ec.EllipticCurvePrivateKey, key: ec.EllipticCurvePublicKey, subject: x509.Name
) -> x509.CertificateBuilder:
    by = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    return (
        x509.CertificateBuilder(issuer_name=_NAME, subject_name=subject, public_key=key)
        .not_valid_before(_NOT_BEFORE)
        .not_valid_after(_NOT_AFTER)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(by, critical=False)
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _host_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)
