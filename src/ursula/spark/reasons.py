"""Why something failed in a task of Spark, without the pages that Spark tells around it."""

_TRACEBACK = "Traceback (most recent call last):"


def reason_of(error: Exception) -> str:
    """The last exception of Python that an error of Spark tells of; without one, its first line."""
    lines = str(error).splitlines() or [repr(error)]
    traces = [number for number, line in enumerate(lines) if line.lstrip().startswith(_TRACEBACK)]
    if not traces:
        return lines[0]
    for line in lines[traces[-1] + 1 :]:
        if line.strip() and not line.startswith((" ", "\t")):
            return line
    return lines[0]
