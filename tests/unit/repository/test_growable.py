"""Whatever can grow in mgpud and in the holder has a bound. It is found by how the sources make such things,
not by a list: a container that is empty at first in Python; memory, threads and files of the journal in C.
Each has a row in growable.tsv, which names the constant by which it is bounded, and what takes a place there.
"""

import re
from collections import Counter
from pathlib import Path

from tests.support.places import REPOSITORY
from tests.support.tsv import read

LIST = Path(__file__).with_name("growable.tsv")
ARBITER = REPOSITORY / "native_sched"
# It runs for one container at a time, and ends.
LEFT_OUT = ARBITER / "checkpoint"
# Bounds that are no constant: a number that the source fixes; pods of the node, whose number kubelet bounds.
WORDS = ("fixed", "kubelet")

_EMPTY = r"(?:\{\}|\[\]|set\(\)|deque\(|OrderedDict\(|defaultdict\()"
_FACTORY = r"field\(default_factory=(?:dict|list|set|deque|OrderedDict)\b"
GROWS_IN_PYTHON = re.compile(
    rf"^ {{4}}(\w+): [^=\n]*= {_FACTORY}|^ {{8}}self\.(\w+)(?:: [^=\n]*)? = {_EMPTY}", re.MULTILINE
)
GROWS_IN_C = re.compile(
    r"\b(malloc|calloc|realloc|reallocarray|strdup|strndup|store_open|pthread_create|epoll_create1)\("
)
COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
DEFINITION = re.compile(r"^int store_open\(", re.MULTILINE)


def grows(path: Path, text: str) -> Counter[tuple[str, str]]:
    """(path, what) and how often."""
    where = str(path.relative_to(REPOSITORY))
    if path.suffix == ".py":
        return Counter({(where, one or other) for one, other in GROWS_IN_PYTHON.findall(text)})
    code = DEFINITION.sub("", COMMENT.sub("", text))
    return Counter((where, name) for name in GROWS_IN_C.findall(code))


def sources() -> list[Path]:
    found = [*(ARBITER / "daemon").rglob("*.py"), *ARBITER.rglob("*.c")]
    return [path for path in found if LEFT_OUT not in path.parents]


def test_whatever_grows_has_a_row_that_names_its_bound() -> None:
    found: Counter[tuple[str, str]] = Counter()
    for path in sources():
        found += grows(path, path.read_text())
    listed = {(row["path"], row["name"]): int(row["times"]) for row in read(LIST)}
    assert found == listed, "say in tests/unit/repository/growable.tsv what bounds it, or bound it"
    assert len(listed) > 60


def test_bounds_are_constants_of_the_sources() -> None:
    texts = "\n".join(path.read_text() for path in (*sources(), *ARBITER.rglob("*.h")))
    for row in read(LIST):
        bound = row["bound"]
        assert bound in WORDS or re.search(rf"\b{bound}\b(?:: \w+)? = ?", texts), row
        assert row["each"], row


def test_container_that_nobody_has_listed_is_found() -> None:
    made = ARBITER / "daemon" / "made.py"
    text = "class A:\n    def __init__(self):\n        self._seen: dict[str, int] = {}\n"
    assert grows(made, text) == Counter({("native_sched/daemon/made.py", "_seen"): 1})
    code = "/* malloc( */\nint *at = reallocarray(at, n, 8), *other = calloc(n, 8);\n"
    assert sorted(grows(ARBITER / "made.c", code)) == [
        ("native_sched/made.c", "calloc"),
        ("native_sched/made.c", "reallocarray"),
    ]
