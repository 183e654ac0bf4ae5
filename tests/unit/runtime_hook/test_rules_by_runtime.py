"""A device rule of any type goes by the runtime below, also where mgpud is asked: it knows no runtime."""

import json
from pathlib import Path

import pytest

from tests.create_path import Mgpud, Node, ok, write_script
from tests.support.commands import run
from tests.unit.spec_support import DENY_ALL, load

pytestmark = pytest.mark.usefixtures("create_path_programs")


@pytest.mark.parametrize(("runtime", "is_asked"), [("crun", False), ("runc", True)])
def test_under_one_hierarchy(tmp_path: Path, runtime: str, is_asked: bool) -> None:
    said = f'if [ "$1" = --version ]; then echo {runtime} version 1.21; else echo begun; fi'
    node = Node(tmp_path, write_script(tmp_path / "runtime", said))
    spec = load("runc-1.1-spec")
    rule = {"allow": True, "type": "a", "major": 7, "minor": 1, "access": "rwm"}
    spec["linux"]["resources"]["devices"] = [DENY_ALL, rule]
    (tmp_path / "config.json").write_text(json.dumps(spec))
    with Mgpud(node.socket, lambda _request: ok(action="pass")) as mgpud:
        mgpud.prepares = True
        create = (
            f"mount -t cgroup2 cgroup2 /sys/fs/cgroup && exec {node.script} create --bundle {tmp_path} c1"
        )
        done = run("unshare", "--mount", "--propagation", "private", "sh", "-c", create)
    assert done == "begun\n"
    assert [request["verb"] for request in mgpud.requests] == ["admit"] * is_asked
