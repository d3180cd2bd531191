"""The report says what a machine did not allow to be tried."""

import pytest
from tests.faults.notes import NOTES


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the notes, if there are any."""
    if NOTES:
        terminalreporter.section("fault tests on this machine")
        for text in NOTES:
            terminalreporter.write_line(text)
