"""Heavy work on history, as PySpark jobs: on this machine with no set-up, or on any Spark cluster.

Each is a function here and a command `ursula pipeline NAME`.
"""

from .backup import BackedUp, backup, restore
from .compact import Compacted, compact
from .export import Exported, export
from .materialize import Materialized, materialize
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
