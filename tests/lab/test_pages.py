"""Pages that say what runs in the guest and what does not, of all hostile programs and of all stages of the
kit.
"""

import re

from lab import collection
from lab.tests.hostile import ROOMS
from lab.tests.kit import ASKED
from tests.gpu.stages import STAGES
from tests.support.places import REPOSITORY
from tests.support.programs import HOSTILE

DOCS = REPOSITORY / "docs"
TEST, REASON = re.compile(r"`(\w+\.\w+)`"), re.compile(r"none: \w+")


def test_page_names_each_program_with_its_test_or_the_reason() -> None:
    rows = dict(re.findall(r"^\| (\w+) \| (.+?) \| ", (DOCS / "hostile-programs.md").read_text(), re.M))
    del rows["program"]
    assert sorted(rows) == sorted(HOSTILE)
    named = {program: TEST.fullmatch(by) for program, by in rows.items()}
    tests = {test.name for test in collection.tests((), collection.every)}
    assert {found[1] for found in named.values() if found} <= tests
    assert all(found or REASON.match(rows[program]) for program, found in named.items())
    for room, tries in ROOMS.items():
        tried = {one.words.split()[0] for each in tries for one in (each, each.after) if one}
        said = {program for program, by in rows.items() if by == f"`hostile.{room}_are_held`"}
        assert said <= tried, f"{room}: {said - tried} are not tried"
        assert tried <= rows.keys()


def test_page_names_each_stage_of_the_kit_once() -> None:
    text = (DOCS / "driver-lab.md").read_text().partition("\n| stages | in the guest |\n")[2]
    rows = re.findall(r"^\| ([EFP]\d.*?) \| ", text.partition("\n\n")[0], re.M)
    named = [stage for row in rows for stage in row.split(", ")]
    assert sorted(named) == sorted({stage.name.split()[0] for stage in STAGES})
    run = {name.split()[0] for name in ASKED}
    assert run <= set(rows[0].split(", "))
