"""What a person sees: a terminal of 80 columns that understands as much as a progress bar needs."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios

COLUMNS, ROWS = 80, 24

_STEP = re.compile(r"\x1b\[\??(?P<number>\d*)[\d;]*(?P<order>[A-Za-z])|\r|\n|[^\x1b\r\n]")


def run_on_terminal(*arguments: str, environment: dict[str, str]) -> tuple[int, str]:
    """Run `ursula` with its output on a terminal; its exit code, and everything that it wrote."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    command = [sys.executable, "-W", "error", "-m", "ursula", *arguments]
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs
    ) as process:
        os.close(theirs)
        written = b""
        try:
            while piece := os.read(ours, 65536):
                written += piece
        except OSError:
            pass  # a terminal whose other end is closed
        finally:
            os.close(ours)
        code = process.wait(60)
    return code, written.decode()


def lines_left(written: str) -> list[str]:
    """The lines that are on the screen at the end."""
    screen: list[list[str]] = [[]]
    row = column = 0
    for step in _STEP.finditer(written):
        order, text = step["order"], step[0]
        if text == "\r":
            column = 0
        elif text == "\n":
            row += 1
            screen += [[] for _ in range(row + 1 - len(screen))]
        elif order == "A":
            row = max(0, row - int(step["number"] or 1))
        elif order == "K":
            screen[row] = []
        elif order is None:
            line = screen[row]
            line += " " * (column + 1 - len(line))
            line[column] = text
            column += 1
    return [text for line in screen if (text := "".join(line).rstrip())]
