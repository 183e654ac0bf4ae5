"""docs/cluster.md says what admission changes and refuses: no more and no less than the cases show."""

import re

import pytest

from cluster.admission import change, names, refuse
from cluster.admission.names import Settings
from cluster.admission.shapes import Shape, shape_of
from tests.cluster import admission_support as admission
from tests.cluster.admission_support import Case, patched
from tests.support.places import REPOSITORY

PAGE = (REPOSITORY / "docs" / "cluster.md").read_text()
CASES = admission.cases()


def first_column(heading: str) -> set[str]:
    part = PAGE.partition(f"### {heading}\n")[2].partition("\n#")[0]
    return set(re.findall(r"^\| `([^`]+)` \|", part, re.M))


def shape(case: Case) -> Shape:
    found = shape_of(case.manifest["apiVersion"].rpartition("/")[0], case.manifest["kind"])
    assert found is not None
    return found


def test_members_are_those_that_are_changed() -> None:
    changed = set()
    for case in CASES:
        for operation in change.patch(shape(case), case.manifest, case.old or {}, Settings()):
            path = re.sub(r"/\d+/", "/N/", operation["path"])
            changed.add(
                re.sub(r"(/annotations|/resources)(/.*)?$", r"\1", path).replace(
                    "resources", "resources/limits"
                )
            )
    assert first_column("What is changed") == changed


def test_codes_are_those_of_refusals() -> None:
    codes = set()
    for case in CASES:
        manifest, old = case.manifest, case.old or {}
        if case.refused:
            patch = change.patch(shape(case), manifest, old, Settings())
            refusal = refuse.refusal(shape(case), patched(manifest, patch), old, Settings())
            assert refusal is not None, case.name
            codes.add(refusal.code)
    assert first_column("What is refused") == codes


@pytest.mark.parametrize(
    "name", [*names.FAMILIES, *names.RESERVED, *names.EXCLUDED_NAMESPACES, names.DEFAULT_CONTAINER]
)
def test_names_are_on_the_page(name: str) -> None:
    assert name in PAGE
