"""The tests of lab/tests by their names, and whether the rows that they name are in the docs."""

import importlib
import pkgutil
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import lab.tests
from lab.claims import Claim, claim_of
from lab.error import LabError
from lab.places import REPOSITORY

_ROW = re.compile(r"^\| (.+?) \| ", re.M)


@dataclass(frozen=True)
class Named:
    """module:function, as the guest imports it."""

    place: str
    claim: Claim

    @property
    def name(self) -> str:
        return self.place.removeprefix("lab.tests.").replace(":", ".")


def short(claim: Claim) -> bool:
    return not claim.long


def usual(claim: Claim) -> bool:
    """`make lab`: three minutes."""
    return not claim.long or claim.sample


def every(claim: Claim) -> bool:
    return True


def tests(wanted: Sequence[str], which: Callable[[Claim], bool]) -> list[Named]:
    """Those of which a name begins with one of `wanted`, all of them without; in the order of their files.

    Long ones come after the others: they start mgpud, which asks the driver at times of its own, and what the
    GSP says to it would be counted for whichever test runs.
    """
    found = []
    for module in sorted(info.name for info in pkgutil.iter_modules(lab.tests.__path__)):
        place = f"lab.tests.{module}"
        if wanted and not any(word.split(".")[0] == module for word in wanted):
            continue
        for function, value in vars(importlib.import_module(place)).items():
            claim = claim_of(value)
            if claim is not None and value.__module__ == place and which(claim):
                found.append(Named(f"{place}:{function}", claim))
    chosen = [test for test in found if not wanted or any(_named(test, word) for word in wanted)]
    chosen.sort(key=lambda test: (test.claim.long, test.claim.alone))
    if not chosen:
        raise LabError(f"no test of lab/tests is called {' or '.join(wanted)}")
    _known_rows(chosen)
    return chosen


def _named(test: Named, word: str) -> bool:
    return test.name == word or test.name.startswith(f"{word}.")


def _known_rows(chosen: Sequence[Named]) -> None:
    rows = {row for page in (REPOSITORY / "docs").glob("*.md") for row in _ROW.findall(page.read_text())}
    for test in chosen:
        unknown = [row for row in test.claim.rows if row not in rows]
        if unknown:
            raise LabError(f'{test.name} decides what is no row of a table in docs: "{unknown[0]}"')
