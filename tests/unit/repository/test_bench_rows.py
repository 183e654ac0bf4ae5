"""A benchmark that fails loses nothing of the others."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bench import rows
from tests.bench.rows import Row


def row(name: str, value: float = 1.0) -> Row:
    return Row(name=name, value=value, unit="ms", target=2.0)


def fails() -> Iterator[Row]:
    yield row("half")
    raise OSError("no room")


def test_each_part_is_kept_as_it_comes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "build" / "bench.json"
    parts = [("one", lambda: [row("a")]), ("two", fails), ("three", lambda: [row("c")])]
    assert rows.collect(parts, path) == ["two"]
    assert rows.kept(path) == {"one": [row("a")], "three": [row("c")]}
    said = capsys.readouterr()
    assert said.out.splitlines() == [
        "one:",
        "  a: 1.00 ms",
        "two:",
        "  half: 1.00 ms",
        "three:",
        "  c: 1.00 ms",
    ]
    assert "no room" in said.err


def test_later_run_of_some_keeps_the_others(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    rows.collect([("one", lambda: [row("a")]), ("two", lambda: [row("b")])], path)
    rows.collect([("two", lambda: [row("b", 2.0)])], path)
    assert rows.kept(path) == {"one": [row("a")], "two": [row("b", 2.0)]}


@pytest.mark.parametrize("text", ["", "[]", '[{"name": "a"}]', '{"one": [{"title": 1}]}'])
def test_file_of_another_form_is_written_anew(tmp_path: Path, text: str) -> None:
    path = tmp_path / "bench.json"
    path.write_text(text)
    rows.collect([("one", lambda: [row("a")])], path)
    assert rows.kept(path) == {"one": [row("a")]}
