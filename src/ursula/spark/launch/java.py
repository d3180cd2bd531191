"""Whether this machine has a Java that Spark can run on."""

import os
import re
import shutil
import subprocess

JAVA_VERSION_MIN = 17

_HINT = "type: sudo apt-get install openjdk-17-jre-headless, or set JAVA_HOME to another one"
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


class JavaMissing(RuntimeError):
    """There is no Java, or it is too old; the message says what to do."""


def check_java() -> None:
    """Report a problem in one line, before Spark does so in a hundred."""
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if java is None:
        raise JavaMissing(f"Spark needs Java {JAVA_VERSION_MIN} or newer, but there is none: {_HINT}")
    try:
        output = subprocess.run(
            [java, "-version"], check=False, capture_output=True, text=True, timeout=60
        ).stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JavaMissing(f"Spark needs Java, but {java} does not run ({error}): {_HINT}") from None
    found = _VERSION.search(output)
    if found is None or int(found[1]) < JAVA_VERSION_MIN:
        version = found[1] if found else "of unknown version"
        raise JavaMissing(f"Spark needs Java {JAVA_VERSION_MIN} or newer, but {java} is {version}: {_HINT}")
