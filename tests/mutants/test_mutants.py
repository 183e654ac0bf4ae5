"""Mistakes in the mediator are seen: five of the list in each run, chosen by the commit. `make mutants` tries
all, those too that need a guest.
"""

from pathlib import Path

import pytest

from tests.mutants.mutant import NOBODY, mutants, sample
from tests.mutants.world import seen
from tests.support.commands import attempt, run
from tests.support.places import REPOSITORY

LEAST, LEAST_FOREIGN, IN_A_RUN = 20, 16, 5
ROOMS = [f"native_sched/nvidia/{room}/" for room in ("boundary", "account", "channels", "driver")]

COMPILE = ["cc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]

QUICK = [mutant for mutant in mutants() if not mutant.in_a_guest]
IN_C = [mutant for mutant in mutants() if mutant.path.endswith(".c")]


def commit() -> str:
    return attempt("git", "-c", "safe.directory=*", "rev-parse", "HEAD", cwd=REPOSITORY).out.strip()


def test_list_is_long_enough_and_mostly_judged_from_outside() -> None:
    listed = mutants()
    assert len(listed) == len({mutant.name for mutant in listed}) >= LEAST
    assert sum(mutant.foreign for mutant in listed) >= LEAST_FOREIGN
    assert all(any(mutant.path.startswith(room) for mutant in listed) for room in ROOMS)


@pytest.mark.parametrize("mutant", mutants(), ids=lambda mutant: mutant.name)
def test_row_is_of_a_line_that_is_there_once(mutant: object) -> None:
    one = next(found for found in mutants() if found == mutant)
    assert one.text() != (REPOSITORY / one.path).read_text()
    assert (REPOSITORY / one.seen_by.partition("::")[0]).exists()
    assert (one.reason == NOBODY) == one.foreign


@pytest.mark.parametrize("mutant", IN_C, ids=lambda mutant: mutant.name)
def test_mistake_compiles(mutant: object, tmp_path: Path) -> None:
    """With the flags of the build: a mistake that the compiler sees needs no test."""
    one = next(found for found in mutants() if found == mutant)
    (tmp_path / "mistaken.c").write_text(one.text())
    folders = [
        str(place) for place in ((REPOSITORY / one.path).parent, REPOSITORY / "native_sched", REPOSITORY)
    ]
    words = [*COMPILE, "-iquote", folders[0], "-I", folders[1], "-I", folders[2], "mistaken.c"]
    run(*words, cwd=tmp_path)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("mutant", sample(QUICK, commit(), IN_A_RUN), ids=lambda mutant: mutant.name)
def test_mistake_is_seen(private_host: None, mutant: object) -> None:
    one = next(found for found in mutants() if found == mutant)
    assert seen(one, one.seen_by), f"{one.seen_by} passes with {one.after!r} in {one.path}"
