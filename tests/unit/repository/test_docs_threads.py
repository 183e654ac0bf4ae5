"""docs/threads.md: every thread and every lock of the engine is in its tables, and nothing else is."""

import re
from collections.abc import Iterator

from tests.support.places import REPOSITORY
from tests.support.tree import C, files_of, relative
from tools.count.figures import ARBITER

PAGE = (REPOSITORY / "docs" / "threads.md").read_text()
_STRUCT = re.compile(r"^struct (\w+) \{.*?^\}", re.DOTALL | re.MULTILINE)
_TYPE = r"(?:pthread_mutex_t|pthread_rwlock_t|struct mutex)"
_MEMBER = re.compile(rf"^ +{_TYPE}\s+(\w+);", re.MULTILINE)
_STATIC = re.compile(rf"^static {_TYPE} (\w+)", re.MULTILINE)
# A call in the body of a function whose name stands at the start of a line.
_FUNCTION = re.compile(r"^(?:static )?[\w ]+[ *](\w+)\([^;{]*\)\n\{(.*?)^\}", re.DOTALL | re.MULTILINE)


def sources() -> Iterator[str]:
    for path in files_of(C):
        if relative(path).partition("/")[0] in ARBITER:
            yield path.read_text()


def column(heading: str, number: int) -> set[str]:
    """What stands in backquotes in a column of the section's table."""
    section = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    cells = [line.split("|")[number] for line in section.splitlines() if line.startswith("| ")]
    return {word for cell in cells for word in re.findall(r"`([^`]+)`", cell)}


def locks() -> set[str]:
    found: set[str] = set()
    for text in sources():
        found.update(_STATIC.findall(text))
        for struct in _STRUCT.finditer(text):
            found.update(f"{struct[1]}.{member}" for member in _MEMBER.findall(struct[0]))
    return found


def makers() -> set[str]:
    return {
        name
        for text in sources()
        for name, body in _FUNCTION.findall(text)
        if re.search(r"\bpthread_create\(", body)
    }


def test_locks_are_those_of_the_sources() -> None:
    assert len(locks()) > 10
    assert column("Locks", 2) == locks()


def test_threads_are_made_where_the_page_says() -> None:
    assert len(makers()) > 4
    assert column("Threads", 2) == makers()


def test_levels_rise() -> None:
    section = PAGE.partition("## Locks\n")[2]
    levels = [int(level) for level in re.findall(r"^\| (\d+) \|", section, re.MULTILINE)]
    assert levels == sorted(levels)
