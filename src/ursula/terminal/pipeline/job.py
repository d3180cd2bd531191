"""What all jobs have in common: options, a Spark session while they run, errors and a report."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..output import emit_json, emit_line, fail
from ..server.session import ServerOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ursula.spark.options import S3Options

PLACE = "A folder, or s3://bucket/prefix."
StorePlace = Annotated[str, typer.Argument(metavar="STORE", help=PLACE, show_default=False)]
Folder = Annotated[str, typer.Argument(metavar="FOLDER", help=PLACE, show_default=False)]
BucketName = Annotated[
    str, typer.Argument(metavar="BUCKET", help="The name of a bucket.", show_default=False)
]
StorePath = Annotated[
    str | None,
    typer.Option(
        "--path",
        metavar="STORE",
        help="The root of its store, if tasks reach it differently than the server does.",
        show_default=False,
    ),
]
StoreOnly = Annotated[
    str | None,
    typer.Option("--store", metavar="STORE", help="Read this store, without a server.", show_default=False),
]


@dataclass(frozen=True)
class JobOptions:
    """Where a job runs, what it reports, and how it reaches S3: an option group of every job."""

    master: Annotated[str, typer.Option("--master", metavar="MASTER", help="Where Spark runs.")] = "local[*]"
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")] = False
    report: Annotated[
        Path | None,
        typer.Option(
            "--report", metavar="FILE", help="Also write the report to a file, as JSON.", show_default=False
        ),
    ] = None
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Print everything that Spark logs, not only errors.")
    ] = False
    s3_endpoint: Annotated[
        str | None,
        typer.Option(
            "--s3-endpoint",
            metavar="URL",
            help="The URL of S3; keys are found as AWS tools find them.",
            show_default=False,
        ),
    ] = None
    s3_region: Annotated[
        str | None,
        typer.Option("--s3-region", metavar="NAME", help="The region of the bucket.", show_default=False),
    ] = None

    @property
    def s3(self) -> "S3Options":
        """How to reach S3."""
        from ursula.spark.options import S3Options

        return S3Options(self.s3_endpoint, self.s3_region)

    def read_options(self, bucket: str, server: ServerOptions, store: str | None) -> dict[str, str]:
        """The options of a Spark read of a bucket, from a server or from a store without one."""
        where = {"path": store} if store else {"endpoint": server.url, "auth": server.auth}
        given = {"bucket": bucket, **where, "s3Endpoint": self.s3_endpoint, "s3Region": self.s3_region}
        return {name: text for name, text in given.items() if text is not None}

    @contextmanager
    def session(self) -> "Iterator[SparkSession]":
        """A Spark session for the duration of a job; an existing one is kept. Each error is one line."""
        from ursula.cold.objects.store import StoreFailed
        from ursula.engine.offline.restore import RestoreRefused
        from ursula.engine.start.data_folder import FolderRefused
        from ursula.engine.start.load_state import StoreRefused
        from ursula.pipeline.job_lease import LeaseTaken
        from ursula.spark import session
        from ursula.spark.http_client import RequestRefused, ServerUnreachable
        from ursula.spark.launch.java import JavaMissing
        from ursula.spark.options import OptionError
        from ursula.spark.spark_errors import root_cause

        try:
            from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
            from pyspark.errors import PySparkException
            from pyspark.sql import SparkSession

            before = SparkSession.getActiveSession()
            if before is not None and before.sparkContext.master != self.master:
                fail(f"this process already has a session at {before.sparkContext.master}: stop it first")
            quiet = {"spark.ui.showConsoleProgress": "false"}
            spark = session(self.master, quiet, quiet=not self.verbose)
        except JavaMissing as error:
            fail(str(error))
        try:
            yield spark
        except (
            OptionError,
            RequestRefused,
            ServerUnreachable,
            StoreFailed,
            RestoreRefused,
            StoreRefused,
            FolderRefused,
            LeaseTaken,
            OSError,
        ) as error:
            fail(str(error))
        except (PySparkException, Py4JJavaError) as error:
            fail(f"a task failed: {root_cause(error)}")
        finally:
            if before is None:
                spark.stop()

    def print_report(self, facts: dict[str, Any], lines: dict[str, str]) -> None:
        """Print the report: facts as JSON for programs, or lines with titles for people."""
        if self.report is not None:
            self.report.write_text(json.dumps(facts, indent=2) + "\n")
        if self.as_json:
            emit_json(facts)
            return
        width = max(map(len, lines), default=0) + 2
        for name, line in lines.items():
            emit_line(f"{name:<{width}}{line}")
