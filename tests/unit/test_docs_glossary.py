"""docs/glossary.md decides once: no term twice, no replaced word that is a term, no identifier two ways."""

from __future__ import annotations

import re

from tests.support.places import REPOSITORY

PAGE = (REPOSITORY / "docs" / "glossary.md").read_text()
TERMS, _, REST = PAGE.partition("\n## Identifiers\n")
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
