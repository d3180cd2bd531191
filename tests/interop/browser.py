"""A page in a real browser, and the reports that it sends back to where it came from."""

import json
import os
import queue
import shutil
import signal
import subprocess
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self
from urllib.parse import quote

import pytest

REPORT_SECONDS_MAX = 60.0
EXIT_SECONDS_MAX = 60.0

OPTIONS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-crash-reporter",
    "--disable-sync",
    "--no-default-browser-check",
    "--no-first-run",
    "--no-proxy-server",
)


class Report(NamedTuple):
    """One event that the page saw, with the state its `EventSource` was in."""

    kind: str
    state: int
    id: str | None
    data: str | None


class Browser:
    """Chromium for one page, which is served from an origin of its own."""

    def __init__(self, page: Path) -> None:
        self._page = page.read_bytes()
        self._reports: queue.Queue[Report] = queue.Queue()
        self._process: subprocess.Popen[bytes] | None = None
        self.reports: list[Report] = []
        """What `next_report` returned so far."""

    @property
    def origin(self) -> str:
        """Where the page comes from."""
        return f"http://127.0.0.1:{self._site.server_port}"

    def open(self, query: str) -> None:
        """Show the page, with something for it to read in its address."""
        program = shutil.which("chromium")
        if program is None:
            pytest.fail("there is no chromium, type: sudo apt-get install chromium")
        home = Path(self._folder.name)
        address = f"{self.origin}/?{quote(query, safe='')}"
        with (home / "output").open("wb") as output:
            self._process = subprocess.Popen(
                [program, *OPTIONS, f"--user-data-dir={home / 'profile'}", address],
                env={**os.environ, "HOME": str(home), "TMPDIR": str(home)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def next_report(self) -> Report:
        """Wait for what the page sees next."""
        try:
            report = self._reports.get(timeout=REPORT_SECONDS_MAX)
        except queue.Empty:
            output = (Path(self._folder.name) / "output").read_text(errors="replace")
            pytest.fail(f"the page saw nothing more than {self.reports}; Chromium says:\n{output}")
        self.reports.append(report)
        return report

    def next_of(self, kind: str) -> Report:
        """Wait for a report of this kind, and remember the others that come before it."""
        while (report := self.next_report()).kind != kind:
            pass
        return report

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True)
        self._site = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._site.serve_forever, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(EXIT_SECONDS_MAX)
        self._site.shutdown()
        self._thread.join()
        self._site.server_close()
        self._folder.cleanup()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        page, reports = self._page, self._reports

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                is_page = self.path.startswith("/?")
                self._answer(200 if is_page else 404, page if is_page else b"")

            def do_POST(self) -> None:
                fields: dict[str, Any] = json.loads(self.rfile.read(int(self.headers["content-length"])))
                reports.put(Report(fields["kind"], fields["state"], fields.get("id"), fields.get("data")))
                self._answer(204, b"")  # only now: the next report may come as soon as this one is answered

            def _answer(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("content-type", "text/html")
                if status != 204:
                    self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *arguments: object) -> None:
                pass

        return Handler
