"""mgpud's log: whatever is in a name, one event is one line, and no program fills a disk with them."""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from native_sched.daemon.log import (
    EVENT_BURST,
    EVENT_PER_S,
    TENANT_BURST,
    VALUE_MAX_CHARS,
    Format,
    Log,
    value,
)

PAIR = re.compile(r'([a-z_]+)=("(?:[^"\\]|\\.)*"|[A-Za-z0-9_./:@%+-]+)(?: |$)')
LINE_MAX_BYTES = 4096
DAY_S = 86400
# What a name may be made of: everything that ends a line somewhere, commands a terminal or is no UTF-8.
HOSTILE = st.text(
    st.sampled_from('\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029\x00\x1b\x7f\x9b\ud800\udfff="\\ {}[]é中a'),
    max_size=50,
)
NAMES = st.one_of(HOSTILE, st.text(max_size=400))


class Written:
    """A log into a file, with a clock of its own."""

    def __init__(self, path: Path, form: Format) -> None:
        self.path = path
        self.now_s = 0.0
        self.fd = os.open(path, os.O_CREAT | os.O_RDWR | os.O_TRUNC | os.O_APPEND)
        self.log = Log(self.fd, form=form, clock=lambda: self.now_s)

    def lines(self) -> list[str]:
        """Every line; the file's bytes are ASCII, and end with one."""
        text = self.path.read_bytes().decode("ascii")
        assert not text or text.endswith("\n")
        return text.splitlines()


@pytest.fixture(params=["text", "json"])
def written(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Written]:
    made = Written(tmp_path / "log", request.param)
    yield made
    os.close(made.fd)


def parsed(line: str) -> dict[str, Any]:
    """A line's fields as a reader of logs finds them. AssertionError when it is anything else."""
    if line.startswith("{"):
        found: dict[str, Any] = json.loads(line)
        return found
    pairs = PAIR.findall(line)
    assert "".join(f"{name}={text} " for name, text in pairs).rstrip() == line
    return {name: json.loads(text) if text.startswith('"') else text for name, text in pairs}


def utf16(text: object) -> bytes:
    """Two lone surrogates side by side are a character to JSON."""
    return str(text).encode("utf-16", "surrogatepass")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(container=NAMES, why=NAMES, count=st.integers())
def test_log_field_never_breaks_a_line(written: Written, container: str, why: str, count: int) -> None:
    before = len(written.lines())
    written.now_s += 1000
    written.log.warning("listener-without-grant", container=container, why=why, count=count)
    lines = written.lines()
    assert len(lines) == before + 1
    assert lines[-1].isprintable()
    assert len(lines[-1]) < LINE_MAX_BYTES
    found = parsed(lines[-1])
    assert utf16(found["container"]) == utf16(value(container))
    assert utf16(found["why"]) == utf16(value(why))
    assert int(found["count"]) == count
    assert found["event"] == "listener-without-grant"
    assert written.log.recent()[-1].text.isascii()


def test_line_is_key_value_or_json(written: Written) -> None:
    written.log.info("serving", driver="sim", cards=2, who="é é", none=None)
    [line] = written.lines()
    at = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
    if written.log.form == "text":
        wanted = rf'time={at} level=info event=serving driver=sim cards=2 who="\\u00e9 \\u00e9" none=null'
    else:
        wanted = (
            rf'{{"time": "{at}", "level": "info", "event": "serving", "driver": "sim", "cards": 2, '
            r'"who": "\\u00e9 \\u00e9", "none": null}'
        )
    assert re.fullmatch(wanted, line)
    assert written.log.recent() == [], "what is no warning is not remembered"


def test_value_is_cut(written: Written) -> None:
    written.log.info("refused", why="x" * 10_000)
    assert parsed(written.lines()[0])["why"] == "x" * VALUE_MAX_CHARS + "..."


def test_noisy_container_does_not_silence_another(written: Written) -> None:
    for _ in range(1000):
        written.log.info("refused", container="noisy")
    assert len(written.lines()) == TENANT_BURST
    written.log.info("refused", container="quiet")
    written.log.info("not-created", container="noisy")
    last = [parsed(line) for line in written.lines()[TENANT_BURST:]]
    assert [(line["event"], line["container"]) for line in last] == [
        ("refused", "quiet"),
        ("not-created", "noisy"),
    ]
    assert int(last[0]["left_out"]) == 1000 - TENANT_BURST
    assert "left_out" not in last[1]
    assert written.log.left_out == 1000 - TENANT_BURST


def test_lines_of_one_event_are_bounded_for_a_day(written: Written) -> None:
    """A new name each time, four times a second, each as long as the log lets it be."""
    for number in range(2000):
        written.now_s += DAY_S / 2000
        for _ in range(20):
            written.log.info("refused", container=f"{number}" + "é" * 300)
    lines = written.lines()
    assert len(lines) <= EVENT_BURST + DAY_S * EVENT_PER_S
    # What is written is what the bucket had by then, not less.
    assert len(lines) > DAY_S * EVENT_PER_S * 0.9
    assert sum(map(len, lines)) < 40e6


def test_log_continues_after_a_full_disk() -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    log = Log(full)
    log.error("holder-gone")
    log.error("holder-gone")
    os.close(full)
    assert log.left_out == 2
    assert [entry.event for entry in log.recent()] == ["holder-gone"] * 2


def test_torn_line_does_not_tear_the_next(written: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: whole(fd, data[:10]))
    written.log.info("one")
    monkeypatch.setattr(os, "write", whole)
    written.log.info("two")
    assert parsed(written.lines()[1])["event"] == "two"


def test_fault_says_where(written: Written) -> None:
    try:
        raise ValueError("a\nb")
    except ValueError as error:
        written.log.unexpected({"exception": error})
    found = parsed(written.lines()[0])
    assert found["event"] == "fault"
    assert "ValueError" in found["what"]
    assert found["where"].startswith("test_metrics_log.py:")
