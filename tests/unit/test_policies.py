"""The compute policies: one list for C, one for Python and one for the schemas, and they agree."""

from __future__ import annotations

import re

from oci_specs import schemas, vocabulary
from tests.support.places import REPOSITORY
from tests.support.tree import everything, relative
from tools.count.figures import figures

CORE = REPOSITORY / "native_sched" / "core"
ROW = re.compile(r'^POLICY\((SCHED_\w+), (policy_\w+), "([a-z-]+)"\)$', re.MULTILINE)
# policies.def, policies' own source and its line for meson, vocabulary.py, policy.schema.json, the man page.
MOST_PLACES = 6


def test_policies_have_the_same_numbers_in_c_and_python() -> None:
    rows = ROW.findall((CORE / "policies.def").read_text())
    assert tuple(name for _, _, name in rows) == vocabulary.POLICIES


def test_policies_of_the_schema_are_those_of_the_vocabulary() -> None:
    assert schemas.load("policy")["enum"] == list(vocabulary.POLICIES)


def test_every_policy_s_source_has_a_row() -> None:
    rows = ROW.findall((CORE / "policies.def").read_text())
    assert {f"{file}.c" for _, file, _ in rows} == {path.name for path in CORE.glob("policy_*.c")}


def test_qgpu_names_stand_for_policies() -> None:
    assert set(vocabulary.QGPU_POLICIES.values()) <= set(vocabulary.POLICIES)


def test_policy_is_named_in_few_places() -> None:
    places = figures(REPOSITORY, [relative(path) for path in everything()]).policy_places
    assert len(places) <= MOST_PLACES, places
