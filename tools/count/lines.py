"""Code lines and comments of C and Python sources."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

MAX_COLUMNS = 110
C_SUFFIXES = frozenset({".c", ".h"})
_C_COMMENT = re.compile(r"""/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""", re.DOTALL)
_DIRECTIVE = re.compile(r"^[ \t]*#.*(\\\n.*)*$", re.MULTILINE)
_BODY = re.compile(r"\b(?:struct|union)(?:\s+\w+)?\s*\{([^{}]*)\}")
# Tokens that are no code, but line ends and the like.
_NO_CODE = frozenset(
    {
        tokenize.COMMENT,
        tokenize.DEDENT,
        tokenize.ENCODING,
        tokenize.ENDMARKER,
        tokenize.INDENT,
        tokenize.NEWLINE,
        tokenize.NL,
    }
)


def code_lines(path: Path) -> int:
    """Lines of a C or Python file that are neither blank nor comment; a docstring is a comment."""
    text = path.read_text()
    if path.suffix in C_SUFFIXES:
        without = _C_COMMENT.sub(_no_comment, text)
        return sum(bool(line.strip()) for line in without.splitlines())
    return len(_python_code(text))


def identifiers(path: Path) -> set[str]:
    """Words of a C or Python file's code: none of its comments, none of its strings."""
    text = path.read_text()
    if path.suffix in C_SUFFIXES:
        return set(re.findall(r"\b[A-Za-z_]\w*", _C_COMMENT.sub(_no_text, text)))
    return {token.string for token in _tokens(text) if token.type == tokenize.NAME}


def words(path: Path) -> list[str]:
    """All words of a file but those of C's and Python's comments."""
    try:
        text = path.read_text()
    except UnicodeDecodeError:
        return []
    if path.suffix in C_SUFFIXES:
        text = _C_COMMENT.sub(_no_comment, text)
    elif path.suffix == ".py":
        text = re.sub(r"(^ *|  )#.*", "", text, flags=re.MULTILINE)
    return re.findall(r"\w+", text)


def torn_members(text: str) -> list[str]:
    """Members of C's structs that go on in another line, which a comment beside them brings about."""
    text = _DIRECTIVE.sub("", _C_COMMENT.sub(_no_text, text))
    found: list[str] = []
    while body := _BODY.search(text):
        members = (member.strip() for member in body[1].split(";"))
        found += [" ".join(member.split()) for member in members if "\n" in member and "(" not in member]
        text = f"{text[: body.start()]} {text[body.end() :]}"
    return found


def wide_comments(path: Path) -> list[int]:
    """Numbers of the lines on which a comment goes past MAX_COLUMNS."""
    text = path.read_text()
    commented = c_comments(text) if path.suffix in C_SUFFIXES else python_comments(text)
    return [n for n, line in enumerate(text.splitlines(), 1) if n in commented and len(line) > MAX_COLUMNS]


def c_comments(text: str) -> set[int]:
    """Lines that end in a comment or inside of one."""
    found: set[int] = set()
    for match in _C_COMMENT.finditer(text):
        if match[0].startswith("/"):
            first = text.count("\n", 0, match.start()) + 1
            last = first + match[0].count("\n")
            ends_line = not text[match.end() :].partition("\n")[0].strip()
            found.update(range(first, last + ends_line))
    return found


def python_comments(text: str) -> set[int]:
    found = {token.start[0] for token in _tokens(text) if token.type == tokenize.COMMENT}
    return found | _docstrings(text)


def _no_text(match: re.Match[str]) -> str:
    return "\n" * match[0].count("\n") + " "


def _no_comment(match: re.Match[str]) -> str:
    return "\n" * match[0].count("\n") if match[0].startswith("/") else match[0]


def _python_code(text: str) -> set[int]:
    found: set[int] = set()
    for token in _tokens(text):
        if token.type not in _NO_CODE:
            found.update(range(token.start[0], token.end[0] + 1))
    blank = {n for n, line in enumerate(text.splitlines(), 1) if not line.strip()}
    return found - _docstrings(text) - blank


def _tokens(text: str) -> Iterator[tokenize.TokenInfo]:
    return tokenize.generate_tokens(io.StringIO(text).readline)


def _docstrings(text: str) -> set[int]:
    found: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                found.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return found
