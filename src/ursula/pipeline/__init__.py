"""Heavy work on history as PySpark jobs, on this machine without any setup, or on any Spark cluster.

Each job is a function here and a command `ursula pipeline NAME`. The code that tasks run on executors is in
`ursula.spark.tasks`.
"""

from .backup import BackedUp, backup
from .compact import Compacted, compact
from .export import Exported, export
from .materialize import Materialized, materialize
from .restore import restore
from .usage import Usage, Used, usage
from .verify import verify

__all__ = [
    "BackedUp",
    "Compacted",
    "Exported",
    "Materialized",
    "Usage",
    "Used",
    "backup",
    "compact",
    "export",
    "materialize",
    "restore",
    "usage",
    "verify",
]
