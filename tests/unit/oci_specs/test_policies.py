"""The compute policies: one list for C, one for Python and one for the schemas, and they agree."""

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from oci_specs import schemas, vocabulary
from tests.support.commands import run
from tests.support.places import REPOSITORY
from tests.support.tree import everything, relative

CORE = REPOSITORY / "native_sched" / "core"
ROW = re.compile(r'^POLICY\((SCHED_\w+), (policy_\w+), "([a-z-]+)"\)$', re.MULTILINE)
NAMES = {*vocabulary.POLICIES, "NATIVE_BURST_SHARE", "FIXED_SHARE", "GUARANTEED_BURST_SHARE"}
SAYS = """
#include "native_sched/core/policy.h"
#include <stdio.h>

int main(void)
{
#define POLICY(id, object, name) printf("%s %d %d\\n", name, object.has_quota, object.throttled != NULL);
#include "native_sched/core/policies.def"
    return 0;
}
"""


def test_policies_have_the_same_numbers_in_c_and_python() -> None:
    rows = ROW.findall((CORE / "policies.def").read_text())
    assert tuple(name for _, _, name in rows) == vocabulary.POLICIES


def test_policies_mean_the_same_in_c_and_python(tmp_path: Path) -> None:
    """C says it in the policy's object; placement and `mgpu top` reckon without the engine."""
    source, program = tmp_path / "says.c", tmp_path / "says"
    source.write_text(SAYS)
    files = [source, *CORE.glob("*.c")]
    subprocess.run(["cc", "-D_GNU_SOURCE", f"-I{REPOSITORY}", "-o", program, *files, "-lm"], check=True)
    said = run(program)
    policies = {name: flags for name, *flags in map(str.split, said.splitlines())}
    assert list(policies) == list(vocabulary.POLICIES)
    assert {name for name, (heeds, _) in policies.items() if heeds == "1"} == vocabulary.HEEDS_QUOTAS
    assert {name for name, (_, bind) in policies.items() if bind == "1"} == vocabulary.QUOTAS_BIND


def named(node: ast.AST) -> Iterator[object]:
    if isinstance(node, ast.Constant):
        yield node.value
    elif isinstance(node, ast.Name | ast.alias | ast.Attribute):
        yield (
            node.attr
            if isinstance(node, ast.Attribute)
            else node.id
            if isinstance(node, ast.Name)
            else node.name
        )


def test_no_python_but_the_vocabulary_names_a_policy() -> None:
    """A rule that goes by a policy's name is wrong for the next policy."""
    for path in everything():
        if path.suffix == ".py" and relative(path).split("/")[0] not in ("tests", "demo", "tools"):
            found = {value for node in ast.walk(ast.parse(path.read_text())) for value in named(node)}
            assert relative(path) == "oci_specs/vocabulary.py" or not found & NAMES, path


def test_policies_of_the_schema_are_those_of_the_vocabulary() -> None:
    assert schemas.load("policy")["enum"] == list(vocabulary.POLICIES)


def test_every_policy_s_source_has_a_row() -> None:
    rows = ROW.findall((CORE / "policies.def").read_text())
    assert {f"{file}.c" for _, file, _ in rows} == {path.name for path in CORE.glob("policy_*.c")}


def test_every_policy_is_built() -> None:
    built = (CORE.parent / "meson.build").read_text()
    for path in CORE.glob("policy_*.c"):
        assert f"'core/{path.name}'" in built, f"{path.name} is not in native_sched/meson.build"


@pytest.mark.parametrize("page", ["README.md", "docs/scheduler.md"])
def test_every_policy_is_explained(page: str) -> None:
    for name in vocabulary.POLICIES:
        assert f"`{name}`" in (REPOSITORY / page).read_text(), f"{name} is not in {page}"


def test_every_policys_promise_is_tested() -> None:
    tests = (CORE.parents[1] / "tests" / "native" / "core" / "test_sched_policies.py").read_text()
    for number, _, _ in ROW.findall((CORE / "policies.def").read_text()):
        name = number.removeprefix("SCHED_")
        assert name in tests, f"{name} is not in tests/native/core/test_sched_policies.py"


def test_qgpu_names_stand_for_policies() -> None:
    assert set(vocabulary.QGPU_POLICIES.values()) <= set(vocabulary.POLICIES)
