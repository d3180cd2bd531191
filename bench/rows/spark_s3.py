"""Spark on a bucket whose store is in S3, against its own scan of the same files from the local disk."""

from pathlib import Path

from tests.cold.seaweed import Seaweed

from .. import object_storage
from ..client import get
from ..results import Row
from ..rounds import Plan
from ..servers import OURS, Kind, Server, scratch_folder, started
from ..spark_events import BUCKET, SCANS, SESSION, compare_scans, fill, title, total, total_bytes

PREFIX = "spark"


def measure(plan: Plan) -> list[Row]:
    """Megabytes of messages per second; the median of several scans after one."""
    row = Row("spark-s3", title(plan, "scanned by Spark from SeaweedFS"))
    row.note(f"local[2], SeaweedFS on the same machine; one warm-up scan, then the median of {SCANS}")

    def once(kind: Kind) -> None:
        import ursula.spark

        with (
            object_storage.seaweed() as storage,
            started(object_storage.stored_there(kind, storage, PREFIX)) as server,
            scratch_folder() as folder,
        ):
            megabytes = fill(server, total_bytes(plan)) / 1e6
            files = _copied(server, storage, folder)
            spark = ursula.spark.session("local[2]", SESSION)
            reader = spark.read.format("ursula").options(endpoint=server.url, bucket=BUCKET)
            there = reader.options(**object_storage.spark_options(storage)).load()
            here = spark.read.parquet(*files).where("kind = 'append'")
            ways = {
                'format("ursula"), from SeaweedFS': lambda: total(there, "value"),
                "Spark's own scan of the same files, local": lambda: total(here, "payload"),
            }
            try:
                far, near = compare_scans(row, megabytes, ways)
            finally:
                spark.stop()
            row.growth_at_least(far, 0.4, near, "Spark's own, local")

    plan.at_most(1).interleave(row, (OURS,), once)
    return [row]


def _copied(server: Server, storage: Seaweed, folder: Path) -> list[str]:
    """Copies of the segments on the local disk."""
    plan = get(server, f"/cluster/plan?bucket={BUCKET}").json()
    store = object_storage.store(storage, PREFIX)
    files = []
    for number, segment in enumerate(plan["segments"]):
        file = folder / f"{number}.parquet"
        file.write_bytes(store.get(segment["path"]).bytes())
        files.append(str(file))
    return files
