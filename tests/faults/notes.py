"""What a run could not do here, told at its end: a machine that forbids something must not hide it."""

NOTES: list[str] = []


def note(text: str) -> None:
    """Have something said in the report of the run."""
    if text not in NOTES:
        NOTES.append(text)
