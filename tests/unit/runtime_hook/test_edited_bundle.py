"""A bundle that was edited after mgpu had rewritten its spec: others' parts count, mgpu's are refused."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from oci_specs.edits import ORIGINAL_SHA256, OWN_MEMBERS
from oci_specs.refusal import Refusal
from runtime_hook.bundle import Spec, digest
from tests.create_path import grant
from tests.unit.spec_support import LISTENER, SOCKET, apply, load

SPEC = {**load("docker-20.10-device-nvidia98"), "annotations": {"a": "b"}}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Rewritten."""
    file = tmp_path / "config.json"
    file.write_text(json.dumps(SPEC, indent=3))
    rewrite(file)
    return file


def rewrite(file: Path) -> None:
    spec = Spec(str(file))
    given = grant(SOCKET, LISTENER, cards=2, env=["A=1"], masked_paths=["/proc/driver/nvidia/gpus/0"])
    new = apply(spec.content, given)
    new["annotations"][ORIGINAL_SHA256] = digest(spec.original)
    spec.replace(new)


def at(spec: Any, path: Sequence[str]) -> Any:
    for name in path:
        spec = spec[name]
    return spec


def test_edits_of_what_is_not_mgpus_are_taken(config: Path) -> None:
    edited, expected = json.loads(config.read_text()), json.loads(json.dumps(SPEC))
    for spec in (edited, expected):
        spec["process"]["args"] = ["another", "program"]
        spec["annotations"] = {**spec["annotations"], "new": "one"}
        del spec["process"]["oomScoreAdj"]
    config.write_text(json.dumps(edited, indent=1))
    spec = Spec(str(config))
    assert spec.content == expected == json.loads(config.read_text())
    assert not spec.rewritten
    rewrite(config)
    assert json.loads((config.parent / ".mgpu-config.json").read_text()) == expected
    again = json.loads(config.read_text())
    assert {**again, "annotations": None} == {**edited, "annotations": None}


@pytest.mark.parametrize("path", OWN_MEMBERS, ids=".".join)
def test_edit_of_what_mgpu_wrote_is_refused(config: Path, path: tuple[str, ...]) -> None:
    edited = json.loads(config.read_text())
    at(edited, path[:-1])[path[-1]] = ["edited"]
    config.write_text(json.dumps(edited))
    with pytest.raises(Refusal, match="in what mgpu wrote"):
        Spec(str(config))
    assert json.loads(config.read_text()) == edited


def test_grant_changes_nothing_else(config: Path) -> None:
    after, before = json.loads(config.read_text()), json.loads(json.dumps(SPEC))
    for spec in (before, after):
        for *folders, name in OWN_MEMBERS:
            at(spec, folders).pop(name, None)
        del spec["annotations"]
    assert after == before
