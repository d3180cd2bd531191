"""The session sends executors what they need, and all that they must have already is pyarrow."""

import json
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZipFile

import httpx
import pytest
from pyspark.sql import SparkSession
from tests.server import Server
from tests.spark.conftest import SETTINGS, SHORT_LIVED

import ursula.spark
from ursula.spark.launch.package_zip import is_local, package_zip, send_package

THERE = ("pyarrow", "pyarrow.libs", "numpy", "numpy.libs", "pyspark", "py4j")
"""What an executor has: pyarrow and numpy are installed, the others come with Spark."""

READS = """
import json, sys
sys.path[:0] = sys.argv[1:3]
from ursula.spark.reads.options import parse_read_options
from ursula.spark.reads.partitions import partitions_of
from ursula.spark.reads.rows import read_partition
from ursula.spark.source import UrsulaSource
from ursula.spark.tasks import day_files, fold, merge_segments, object_copy
from ursula.spark.tasks import segment_check, segment_usage, state_files
options = parse_read_options(json.loads(sys.argv[3]))
batches = [batch for task in partitions_of(options) for batch in read_partition(options, task, ["stream"])]
found = sorted({name for batch in batches for name in batch["stream"].to_pylist()})
foreign = {name.partition(".")[0] for name in sys.modules} - sys.stdlib_module_names
print(json.dumps([UrsulaSource.name(), found, sorted(foreign), sys.modules["ursula"].__file__]))
"""


@pytest.fixture(scope="module")
def cluster(no_spark: None) -> Iterator[SparkSession]:
    """A session with an executor in its own process."""
    settings = {**SETTINGS, "spark.executor.memory": "512m", "spark.executor.extraJavaOptions": SHORT_LIVED}
    spark = ursula.spark.session("local-cluster[1,1,1024]", settings)
    yield spark
    spark.stop()


@pytest.fixture
def executor_path(tmp_path: Path) -> Path:
    """A folder in which Python finds what is on an executor, and nothing else."""
    for name in THERE:
        spec = find_spec(name.partition(".")[0])
        assert spec is not None
        assert spec.origin is not None
        found = Path(spec.origin).parent.parent / name
        if found.exists():
            (tmp_path / name).symlink_to(found)
    return tmp_path


def test_an_executor_needs_only_the_file_and_pyarrow(
    server: Server, bucket: str, executor_path: Path
) -> None:
    options = {"endpoint": server.url, "bucket": bucket}
    command = [sys.executable, "-I", "-S", "-c", READS, str(package_zip()), str(executor_path)]
    ran = subprocess.run([*command, json.dumps(options)], capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    name, streams, foreign, origin = json.loads(ran.stdout)
    assert name == "ursula"
    assert streams == ["both", "cold", "hot"]
    assert origin.startswith(str(package_zip()))
    packages = {one for one in foreign if not one.startswith("_")}
    assert packages <= {"ursula", "pyarrow", "numpy", "pyspark", "py4j", "cython_runtime"}


def test_the_file_has_all_of_the_package() -> None:
    names = ZipFile(package_zip()).namelist()
    assert {"ursula/__init__.py", "ursula/spark/reads/rows.py", "ursula/client/__init__.py"} <= set(names)
    assert all(name.startswith("ursula/") and name.endswith(".py") for name in names)


@pytest.mark.parametrize(
    ("master", "local"),
    [
        ("local", True),
        ("local[*]", True),
        ("local[2,3]", True),
        ("local-cluster[1,1,1024]", False),
        ("spark://host:7077", False),
        ("yarn", False),
        ("k8s://https://host", False),
    ],
)
def test_local_executors_are_threads_of_the_driver(master: str, local: bool) -> None:
    assert is_local(master) is local


def test_executors_of_a_cluster_use_what_was_sent(
    cluster: SparkSession, server: Server, api: httpx.Client, bucket: str
) -> None:
    def where(_: int) -> str:
        import ursula.spark.reads.rows

        return str(ursula.spark.reads.rows.__file__)

    (found,) = cluster.sparkContext.parallelize([1], 1).map(where).collect()
    assert f"/{package_zip().name}/ursula/" in found
    options = {"endpoint": server.url, "bucket": bucket}
    for frame in (
        cluster.read.format("ursula").options(**options).load(),
        ursula.spark.read(cluster, **options),
    ):
        rows = frame.select("stream").distinct().collect()
        assert sorted(row.stream for row in rows) == ["both", "cold", "hot"]


def test_it_is_sent_once(cluster: SparkSession) -> None:
    assert not send_package(cluster)
    assert not send_package(cluster.newSession())
    ursula.spark.register(cluster)


def test_nothing_is_sent_to_local_executors(cluster: SparkSession) -> None:
    cluster.stop()
    local = ursula.spark.session("local[1]")
    try:
        assert not send_package(local)
        assert not local.sparkContext.listFiles
    finally:
        local.stop()
