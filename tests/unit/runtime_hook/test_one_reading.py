"""Specs that runtimes read otherwise than mgpu does are refused."""

import ast
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from oci_specs import edits, reach
from oci_specs.refusal import Refusal
from oci_specs.seccomp import rewrite
from runtime_hook import create, decision, one_reading, precreate
from tests.unit.spec_support import SPECS

TWICE, CASE, NUL = "names a member twice", "only some runtimes take for its like", "a string with a NUL"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"linux":{"devices":[{"path":"/dev/nvidia0"}]},"linux":{}}', TWICE),
        ('{"linux":{"seccomp":{"syscalls":[{"names":["ioctl"],"names":["read"]}]}}}', TWICE),
        ('{"annotations":{"a":"1","\\u0061":"2"}}', TWICE),
        ('{"Linux":{"devices":[{"path":"/dev/nvidia0"}]}}', CASE),
        ('{"linux":{"seccomp":{"defaultAction":"SCMP_ACT_ERRNO","DEFAULTACTION":"SCMP_ACT_ALLOW"}}}', CASE),
        ('{"linux":{"\\u017feccomp":{}}}', CASE),
        ('{"linux":{"seccomp":{"listenerPath":"/x","Listenerpath":"/y"}}}', CASE),
        ('{"linux":{"seccomp":{"syscalls":[{"names":["ioctl\\u0000x"]}]}}}', NUL),
        ('{"annotations":{"run.oci.seccomp_bpf_data\\u0000":"x"}}', NUL),
        ('{"process":{"args":[["a\\u0000"]]}}', NUL),
    ],
)
def test_spec_that_some_runtime_reads_otherwise_is_refused(text: str, why: str) -> None:
    with pytest.raises(Refusal, match=why):
        one_reading.loads(text)


@pytest.mark.parametrize(
    "text",
    [
        '{"annotations":{"Type":"x","PATH":"y"}}',
        '{"process":{"noNewPrivileges":true,"args":["printf","\\\\u0000","Linux"]}}',
        *(path.read_text() for path in sorted(SPECS.glob("*.json"))),
    ],
)
def test_all_else_is_read(text: str) -> None:
    assert one_reading.loads(text) == json.loads(text)


def test_malformed_json_is_no_refusal() -> None:
    for text in ("", '{"a":1', '{"Linux":1} x'):
        with pytest.raises(ValueError):
            one_reading.loads(text)


# Of mgpud's replies and its grants.
NOT_OF_SPECS = {"grant", "hostPath", "masked_paths", "nonce"}


def asked_for(path: Path) -> Iterator[str]:
    """The constant names by which a module looks into objects."""
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        called = node.func
        if isinstance(called, ast.Name) and called.id.startswith("member_"):
            name = node.args[1]
        elif isinstance(called, ast.Attribute) and called.attr == "get":
            name = node.args[0]
        else:
            continue
        if isinstance(name, ast.Constant) and isinstance(name.value, str):
            yield name.value


def test_every_member_that_mgpu_reads_is_known() -> None:
    modules = [create, decision, precreate, edits, reach]
    files = [Path(str(module.__file__)) for module in modules]
    files += Path(str(rewrite.__code__.co_filename)).parent.glob("*.py")
    names = {name for path in files for name in asked_for(path)}
    assert len(names) > 25
    assert names - NOT_OF_SPECS <= one_reading.MEMBERS
    assert {*reach.HOOK_STAGES, *reach.CAPABILITY_SETS} <= one_reading.MEMBERS
