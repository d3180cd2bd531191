"""Runs the Python blocks of a page one after another in this process: a line of JSON in, a line of JSON out.

It is a process of its own, since an example may import anything. DuckDB, for one, prints "leaked instances"
at the end of a process in which a node has run: a node excludes everything that was imported from garbage
collection (`gc.freeze`).
"""

import io
import json
import os
import sys
import traceback
from contextlib import redirect_stdout
from typing import Any

from ursula.client import Client


def main() -> None:
    """Answer until there are no more blocks; then close the clients that the page opened."""
    names: dict[str, Any] = {"__name__": "page"}
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)  # what a JVM prints by itself is no answer
        for line in sys.stdin:
            printed, problem = io.StringIO(), None
            with redirect_stdout(printed):
                try:
                    exec(compile(json.loads(line), "page", "exec"), names)
                except Exception:
                    problem = traceback.format_exc()
            print(json.dumps({"printed": printed.getvalue(), "problem": problem}), file=answers, flush=True)
    for value in names.values():
        if isinstance(value, Client):
            value.close()


main()
