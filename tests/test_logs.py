"""Log lines: text for people, JSON for programs, and never a failure."""

import io
import json
import logging
import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from ursula import logs

logger = logging.getLogger("ursula.test")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    yield
    root.handlers = handlers
    root.setLevel(level)


def written(*, format: str = "json", level: str = "info") -> io.StringIO:
    stream = io.StringIO()
    logs.configure(level, format, stream)
    return stream


def only(stream: io.StringIO) -> dict[str, Any]:
    (line,) = stream.getvalue().splitlines()
    entry = json.loads(line)
    assert isinstance(entry, dict)
    return entry


def test_a_json_line_has_time_level_logger_message_and_the_fields() -> None:
    stream = written()
    logger.info("listening on %s", "a", extra=logs.fields(address="a:1", streams=3))
    entry = only(stream)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", entry["time"])
    assert abs(datetime.fromisoformat(entry.pop("time")).timestamp() - datetime.now().timestamp()) < 60
    assert entry == {
        "level": "info",
        "logger": "ursula.test",
        "message": "listening on a",
        "address": "a:1",
        "streams": 3,
    }


def test_an_exception_is_one_string_in_a_json_line() -> None:
    stream = written()
    try:
        raise RuntimeError("of no use")
    except RuntimeError:
        logger.exception("failed")
    entry = only(stream)
    assert entry["level"] == "error"
    assert entry["exception"].startswith("Traceback")
    assert entry["exception"].endswith("RuntimeError: of no use")


def test_fields_cannot_hide_what_every_line_has() -> None:
    stream = written()
    logger.info("true", extra=logs.fields(message="false", level="false", other=1))
    entry = only(stream)
    assert (entry["message"], entry["level"], entry["other"]) == ("true", "info", 1)


@pytest.mark.parametrize("value", [float("nan"), {("a", 1): 2}, b"\xff", "\udc80", object(), {1, 2}])
def test_any_value_can_be_logged(value: object) -> None:
    stream = written()
    logger.info("odd", extra=logs.fields(value=value))
    assert only(stream)["message"] == "odd"


def test_a_value_that_contains_itself_can_be_logged() -> None:
    stream = written()
    endless: list[object] = []
    endless.append(endless)
    logger.info("odd", extra=logs.fields(value=endless))
    assert only(stream)["value"] == "[[...]]"


def test_a_text_line_is_time_level_message_and_quoted_values() -> None:
    stream = written(format="text")
    logger.warning("careful", extra=logs.fields(path="/a", why="two words", odd='x="\n'))
    line = stream.getvalue()
    assert re.fullmatch(
        r'\d\d:\d\d:\d\d\.\d{3} warning careful path=/a why="two words" odd="x=\\"\\n"\n', line
    )


def test_a_message_with_a_hostile_name_is_one_harmless_text_line() -> None:
    stream = written(format="text")
    logger.error("GET %s failed", "/a\x1b[2J\nfake\x9b\u202e", extra=logs.fields(path="\x9b\u202e"))
    (line,) = stream.getvalue().split("\n")[:-1]
    assert line.endswith('GET /a\\x1b[2J\\nfake\\x9b\\u202e failed path="\\u009b\\u202e"')


def test_an_exception_follows_its_text_line() -> None:
    stream = written(format="text")
    try:
        raise RuntimeError("of no use")
    except RuntimeError:
        logger.exception("failed")
    first, *rest = stream.getvalue().splitlines()
    assert first.endswith("error   failed")
    assert rest[-1] == "RuntimeError: of no use"


def test_auto_is_coloured_text_on_a_terminal_and_json_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    terminal = Terminal()
    logs.configure("info", "auto", terminal)
    logger.info("hello")
    assert "\x1b[32minfo" in terminal.getvalue()
    stream = written(format="auto")
    logger.info("hello")
    assert only(stream)["message"] == "hello"


def test_json_stays_json_on_a_terminal_and_text_off_it_has_no_colours() -> None:
    terminal = Terminal()
    logs.configure("info", "json", terminal)
    logger.info("hello")
    assert only(terminal)["message"] == "hello"
    stream = written(format="text")
    logger.info("hello")
    assert "\x1b" not in stream.getvalue()


def test_no_color_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    terminal = Terminal()
    logs.configure("info", "auto", terminal)
    logger.info("hello")
    assert "\x1b" not in terminal.getvalue()


def test_lines_below_the_level_are_not_written() -> None:
    stream = written(level="warning")
    logger.info("quiet")
    assert stream.getvalue() == ""
    stream = written(level="debug")
    logger.debug("loud")
    assert only(stream)["level"] == "debug"


def test_configuring_again_replaces_the_first_stream() -> None:
    first, second = written(), written()
    logger.info("once")
    assert first.getvalue() == ""
    assert len(second.getvalue().splitlines()) == 1


def test_a_stream_that_is_gone_does_not_stop_the_caller(capsys: pytest.CaptureFixture[str]) -> None:
    stream = written()
    stream.close()
    logger.info("into nothing")
    assert "into nothing" in capsys.readouterr().err
