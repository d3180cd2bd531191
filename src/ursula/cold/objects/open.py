"""Opening a store: the one place that chooses the kind, from the configuration or from an argument."""

from dataclasses import replace
from pathlib import Path

from ursula.config import ColdSettings

from .fs import FsStore
from .store import Store

_S3 = "s3://"


def open_store(cold: ColdSettings, data_dir: Path, node_id: int = 1) -> Store:
    """The store of a server. In a folder that several nodes share, unfinished files belong to one of them."""
    if cold.backend == "s3":
        return _s3(cold)
    folder = Path(cold.root).expanduser() if cold.root else data_dir / "cold"
    return FsStore(folder, f"n{node_id}") if cold.shared_fs else FsStore(folder)


def open_at(where: str, cold: ColdSettings | None = None) -> Store:
    """The store in a folder or at s3://bucket/prefix; the configuration says how to reach S3."""
    if not where.startswith(_S3):
        return FsStore(Path(where).expanduser())
    bucket, _, prefix = where.removeprefix(_S3).partition("/")
    if not bucket:
        raise ValueError(f"{where} names no bucket; write it as s3://bucket/prefix")
    return _s3(replace(cold or ColdSettings(), backend="s3", s3_bucket=bucket, root=prefix))


def _s3(cold: ColdSettings) -> Store:
    from .s3 import Credentials, S3Store  # the import is slow, and most processes do not need it

    return S3Store(
        cold.s3_bucket,
        cold.root,
        region=cold.s3_region,
        endpoint=cold.s3_endpoint,
        credentials=Credentials(
            cold.s3_access_key_id, cold.s3_secret_access_key.text, cold.s3_session_token.text
        )
        if cold.s3_access_key_id
        else None,
    )
