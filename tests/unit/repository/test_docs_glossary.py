"""docs/glossary.md decides once: no term twice, no replaced word that is a term, no identifier two ways."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.support.places import REPOSITORY
from tests.support.tree import PYTHON, files_of, relative

PRODUCT = (
    "cluster",
    "demo",
    "install",
    "mgpu_cli",
    "native_sched",
    "oci_specs",
    "placement",
    "runtime_hook",
    "sim",
)
PAGE = (REPOSITORY / "docs" / "glossary.md").read_text()
TERMS, _, REST = PAGE.partition("\n## Identifiers\n")
# Not in an identifier, an option, a placeholder or a path.
CARD = re.compile(r"(?<![-\w{/.])[Cc]ards?\b(?![-\w}\]/=]|\.\w)")
IDENTIFIERS = REST.partition("\n## ")[0]


def rows(text: str, head: str) -> list[list[str]]:
    """Cells of the tables' rows, without heads and rules."""
    lines = [
        line for line in text.splitlines() if line.startswith("| ") and not line.startswith(f"| {head} ")
    ]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_terms_are_decided_once() -> None:
    terms = [term.strip() for row in rows(TERMS, "term") for term in row[0].split(",")]
    assert len(terms) >= 60
    assert sorted(terms) == sorted(set(terms))


def test_every_term_has_a_meaning_of_one_sentence() -> None:
    assert [row[0] for row in rows(TERMS, "term") if len(row) != 3 or not row[1] or ". " in row[1]] == []


def test_replaced_words_are_no_terms() -> None:
    # "engine" and the like are replaced where they stand alone; a qualifier in brackets says so.
    terms = {term.strip() for row in rows(TERMS, "term") for term in row[0].split(",")}
    replaced = {word.strip() for row in rows(TERMS, "term") for word in row[2].split(",") if "(" not in word}
    assert replaced & terms == set()


def test_identifiers_become_one_name_that_stays() -> None:
    pairs = [tuple(re.findall(r"`(\w+)`", "|".join(row))) for row in rows(IDENTIFIERS, "now")]
    assert all(len(pair) == 2 and pair[0] != pair[1] for pair in pairs)
    now = [pair[0] for pair in pairs]
    assert sorted(now) == sorted(set(now))
    assert {pair[1] for pair in pairs} & set(now) == set()


def prose(path: Path) -> Iterator[str]:
    """What a program of the product may say to people: strings of several words, and headings."""
    tree = ast.parse(path.read_text())
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in docstrings:
            text = str(node.value)
            if " " in text or text.isupper():
                yield text


def test_people_read_gpu_where_identifiers_have_card() -> None:
    files = [path for path in files_of(PYTHON) if relative(path).split("/")[0] in PRODUCT]
    read = [
        (relative(path), text) for path in files if "generated" not in path.parts for text in prose(path)
    ]
    read += [(relative(path), path.read_text()) for path in (REPOSITORY / "mgpu_cli" / "man").glob("*.1")]
    assert len(read) > 2000
    assert [one for one in read if CARD.search(one[1]) or "CARD" in one[1].split()] == []
