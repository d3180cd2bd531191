"""The package as one file for executors, which need not have it installed: pyarrow is enough there.

All of the package, not only what executors import: the file comes before what is installed, and a part of a
package would hide the rest of it from other code that runs there.
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

_PACKAGE = Path(__file__).parent.parent
_shipped: "WeakSet[SparkContext]" = WeakSet()


def ship(spark: "SparkSession") -> bool:
    """Send the package to the executors of a session, once; whether that was needed.

    It is not for local ones, which are on this machine and have this interpreter, nor where this process has
    got the package as such a file itself.
    """
    context = getattr(spark, "sparkContext", None)  # there is none behind Spark Connect
    if context is None or is_local(context.master) or context in _shipped or not _PACKAGE.is_dir():
        return False
    context.addPyFile(str(package_file()))
    _shipped.add(context)
    return True


def is_local(master: str) -> bool:
    """Whether the executors of such a master are threads of the driver."""
    return master == "local" or master.startswith("local[")


@cache
def package_file() -> Path:
    """The package as a zip file, which lives as long as this process: Spark fetches it when it likes."""
    folder = Path(tempfile.mkdtemp(prefix="ursula-spark-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = folder / "ursula.zip"
    with ZipFile(path, "w", ZIP_DEFLATED, strict_timestamps=False) as file:
        for source in sorted(_PACKAGE.rglob("*.py")):
            file.write(source, source.relative_to(_PACKAGE.parent))
    return path
