"""The cause of a task's failure, without the pages of stack traces that Spark prints around it."""

_TRACEBACK = "Traceback (most recent call last):"


def root_cause(error: Exception) -> str:
    """The last Python exception in the message of a Spark error; if there is none, its first line."""
    lines = str(error).splitlines() or [repr(error)]
    traces = [number for number, line in enumerate(lines) if line.lstrip().startswith(_TRACEBACK)]
    if not traces:
        return lines[0]
    for line in lines[traces[-1] + 1 :]:
        if line.strip() and not line.startswith((" ", "\t")):
            return line
    return lines[0]
