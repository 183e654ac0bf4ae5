"""No number of RM's is written twice: code that needs one names NVIDIA's symbol, and the rows and facts say
the number.

Found are, outside of strings and comments: hex numbers from 0x1000 on that are a class's or a control's; any
number that is given a name in which its symbol shows (ALLOC = 0x2B, INVALID_CLASS = 0x22); and a number that
a status is compared with.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache

import pytest

from tests.support.commands import run
from tests.support.places import REPOSITORY
from tests.support.rm_numbers import FACTS, by_symbol
from tools.abi.interface import HEADERS

# By file and number, why it may stand there.
ALLOWED = {
    ("tests/abi/header_tree.py", 0x20800110): "a made-up driver's header",
    ("tests/abi/test_facts_tool.py", 0x20800111): "a made-up driver's header",
    ("tests/gpu/own_client.py", 0x20801701): "it runs where the kit's folder is all that there is",
    **dict.fromkeys(
        (("tests/programs/memory_paths.c", number) for number in (0x3D02, 0x3D04, 0xFD0101, 0xE00101)),
        "refused, so that no row gives C the symbol",
    ),
    **dict.fromkeys(
        (
            ("lab/card/answers/table.c", number)
            for number in (0x801813, 0x20801112, 0x20802A02, 0x20802A07, 0x20802A08, 0x20802A09)
        ),
        "refused, so that no row gives C the symbol",
    ),
    **dict.fromkeys(
        (("lab/card/gsp/gsp.c", number) for number in (0x801813, 0x801814, 0x90F10106)),
        "the driver's own, so that no row gives C the symbol",
    ),
    **dict.fromkeys(
        (("tools/class_lists.py", number) for number in (0xC397, 0xC3B5, 0xC3C0)),
        "what makes the simulated card's lists, which the facts are compared with",
    ),
}
SELF = "tests/abi/test_numbers.py"
LARGE = 0x1000
# Of a smaller number, words of a name in any place of the symbol prove nothing.
TELLING = 0x10
_C_NOISE = re.compile(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.S)
_C_NUMBER = re.compile(r"\b(0[xX][0-9a-fA-F]+|\d+)[uUlL]*\b")
_C_NAMED = re.compile(r"(?:#define\s+(\w+)\s+|\b([A-Z][A-Z0-9_]+)\s*=\s*)(0[xX][0-9a-fA-F]+|\d+)\b")
_COMPARED = re.compile(r"(?:status|\[0\])\s*[!=]=\s*(0[xX][0-9a-fA-F]+)\b")

Found = tuple[int, int, str]
"""Line, number, symbol."""


@cache
def symbols() -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for symbol, number in by_symbol().items():
        if not symbol.startswith("(") and not symbol.endswith("_NULL") and number > 1:
            found.setdefault(number, []).append(symbol)
    return found


@cache
def of_kind(kind: str) -> frozenset[str]:
    lines = (FACTS / f"{kind}.tsv").read_text().splitlines()[1:]
    return frozenset(line.split("\t")[0] for line in lines)


def as_large(number: int) -> str | None:
    kinds = of_kind("class") | of_kind("control")
    return next((name for name in symbols().get(number, ()) if number >= LARGE and name in kinds), None)


def as_named(name: str, number: int) -> str | None:
    words = name.upper().strip("_").split("_")
    for symbol in symbols().get(number, ()):
        theirs = symbol.upper().split("_")
        rest = iter(theirs)
        is_within = number >= TELLING and all(word in rest for word in words)
        if theirs[-len(words) :] == words or is_within:
            return symbol
    return None


def as_status(number: int) -> str | None:
    return next((name for name in symbols().get(number, ()) if name in of_kind("status")), None)


def in_c(text: str) -> Iterator[Found]:
    text = _C_NOISE.sub(lambda noise: re.sub(r"[^\n]", " ", noise[0]), text)

    def line(match: re.Match[str]) -> int:
        return text.count("\n", 0, match.start()) + 1

    for match in _C_NUMBER.finditer(text):
        number = int(match[1], 16) if match[1].lower().startswith("0x") else 0
        if symbol := as_large(number):
            yield line(match), number, symbol
    for match in _C_NAMED.finditer(text):
        number = int(match[3], 16 if "x" in match[3].lower() else 10)
        if symbol := as_named(match[1] or match[2], number):
            yield line(match), number, symbol
    yield from _compared(text)


def in_python(text: str) -> Iterator[Found]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NUMBER and token.string.lower().startswith("0x"):
            number = int(token.string, 16)
            if symbol := as_large(number):
                yield token.start[0], number, symbol
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Assign):
            yield from _assigned(node.targets[0], node.value)
    yield from _compared(text)


def _compared(text: str) -> Iterator[Found]:
    for match in _COMPARED.finditer(text):
        if symbol := as_status(int(match[1], 16)):
            yield text.count("\n", 0, match.start()) + 1, int(match[1], 16), symbol


def _assigned(target: ast.expr, value: ast.expr) -> Iterator[Found]:
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for one, its in zip(target.elts, value.elts, strict=False):
            yield from _assigned(one, its)
    elif isinstance(target, ast.Name) and target.id.isupper():
        number = _number(value)
        if symbol := as_named(target.id, number):
            yield value.lineno, number, symbol


def _number(node: ast.AST) -> int:
    """0: it is none."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int) and not isinstance(node.value, bool):
        return node.value
    return 0


def found(name: str, text: str) -> set[Found]:
    return set(in_python(text) if name.endswith(".py") else in_c(text))


def sources() -> list[str]:
    printed = run("git", "ls-files", "*.c", "*.h", "*.py", cwd=REPOSITORY)
    headers = {path.relative_to(REPOSITORY).as_posix() for path in HEADERS}
    facts = f"{FACTS.parent.relative_to(REPOSITORY).as_posix()}/"
    return [
        name
        for name in printed.split()
        if name not in {*headers, SELF} and not name.startswith(facts) and (REPOSITORY / name).is_file()
    ]


def test_numbers_are_written_once() -> None:
    said = [
        f"{name}:{line}: {number:#x} is {symbol}"
        for name in sources()
        for line, number, symbol in sorted(found(name, (REPOSITORY / name).read_text()))
        if (name, number) not in ALLOWED
    ]
    assert not said, "\n".join(said)


def test_every_exception_is_needed() -> None:
    for name, number in ALLOWED:
        said = {its for _, its, _ in found(name, (REPOSITORY / name).read_text())}
        assert number in said, f"{name} does not have {number:#x} any more"


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        pytest.param(
            "a.c", "static int a = 0x2080110bu;\n", "NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS", id="c"
        ),
        pytest.param("a.c", "enum { CONTROL = 0x2a };\n", "NV_ESC_RM_CONTROL", id="c enum"),
        pytest.param("a.h", "#define FREE 41 \n", "NV_ESC_RM_FREE", id="c macro"),
        pytest.param("a.c", "if (reply.status != 0x51)\n", "NV_ERR_NO_MEMORY", id="c status"),
        pytest.param("a.py", "call(0xC56F)\n", "AMPERE_CHANNEL_GPFIFO_A", id="python"),
        pytest.param("a.py", "A, UVM_FREE = 1, 34\n", "UVM_FREE", id="python names"),
        pytest.param("a.py", "INVALID_CLASS = 0x22\n", "NV_ERR_INVALID_CLASS", id="python status"),
        pytest.param("a.py", "assert answer.status == 0x56\n", "NV_ERR_NOT_SUPPORTED", id="python compared"),
    ],
)
def test_restated_number_is_seen(name: str, text: str, expected: str) -> None:
    assert [symbol for _, _, symbol in found(name, text)] == [expected]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.c", '/* 0x2080110b */ print("0x2080110b"); int a = 0x42;\n'),
        ("a.py", '"""0x2080110b"""  # 0x2080110b\nHANDLE = 0xC1\n'),
    ],
)
def test_comments_strings_and_other_numbers_are_not(name: str, text: str) -> None:
    assert found(name, text) == set()
