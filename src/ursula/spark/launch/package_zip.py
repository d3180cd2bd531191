"""The package as one zip file for executors, which need not have it installed: they only need pyarrow.

The zip has the whole package, not only the modules that executors import. It precedes installed packages on
the path, so a part of the package would hide the rest of it from other code that runs there.
"""

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakSet
from zipfile import ZIP_DEFLATED, ZipFile

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_PACKAGE = Path(__file__).parents[2]
_sent: "WeakSet[SparkContext]" = WeakSet()


def send_package(spark: "SparkSession") -> bool:
    """Send the package to the executors of a session, once. Returns whether that was necessary.

    Local executors do not need it: they are on this machine and run this interpreter. If this process itself
    got the package as such a file, there is no folder to send.
    """
    context = getattr(spark, "sparkContext", None)  # Spark Connect has none
    if context is None or is_local(context.master) or context in _sent or not _PACKAGE.is_dir():
        return False
    context.addPyFile(str(package_zip()))
    _sent.add(context)
    return True


def is_local(master: str) -> bool:
    """Whether the executors of this master are threads of the driver."""
    return master == "local" or master.startswith("local[")


@cache
def package_zip() -> Path:
    """The zip file. It exists until this process ends, since Spark may fetch it at any time."""
    folder = Path(tempfile.mkdtemp(prefix="ursula-spark-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = folder / "ursula.zip"
    with ZipFile(path, "w", ZIP_DEFLATED, strict_timestamps=False) as file:
        for source in sorted(_PACKAGE.rglob("*.py")):
            file.write(source, source.relative_to(_PACKAGE.parent))
    return path
