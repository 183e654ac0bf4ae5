"""A start for which there is no room yet, since a container that has ended still has what it had."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.create_path import Mgpud, Node, ok, one_line, refused, write_script
from tests.support.waiting import until
from tests.unit.spec_support import load

LINE = "mgpu: GPU 0 is taken; wait"
# As many times as the launcher asks in two seconds.
TRIES = 40

pytestmark = pytest.mark.usefixtures("create_path_programs")


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    """Of an mgpud that prepares, and where a container has ended."""
    monkeypatch.setattr(Mgpud, "prepares", True)
    monkeypatch.setattr(Mgpud, "exiting", True)
    (tmp_path / "bundle").mkdir()
    spec = {**load("runc-1.1-spec"), "annotations": {"mgpu.dev/gpus": "1"}}
    (tmp_path / "bundle/config.json").write_text(json.dumps(spec))
    return Node(tmp_path, write_script(tmp_path / "runc", "echo runs"))


def no_room(times: int, node: Node) -> Mgpud:
    """So often; then the container has no part in it."""
    answers = [refused("GPU 0 is taken", "wait")] * times
    return Mgpud(node.socket, lambda _: answers.pop() if answers else ok(action="pass"))


def test_start_finds_the_room_that_is_given_back(node: Node) -> None:
    with no_room(2, node) as mgpud:
        done = node.run("create", "--bundle", str(node.root / "bundle"), "c1")
    assert (done.stdout, done.returncode, len(mgpud.requests)) == ("runs\n", 0, 3)


@pytest.mark.parametrize("exiting", [True, False])
def test_refusal_that_lasts_is_told(node: Node, exiting: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Mgpud, "exiting", exiting)
    with no_room(2 * TRIES, node) as mgpud:
        done = node.run("create", "--bundle", str(node.root / "bundle"), "c1")
    assert (done.returncode, one_line(done.stderr)) == (1, LINE)
    assert len(mgpud.requests) == (TRIES if exiting else 1)


def test_start_of_an_engine_that_is_gone_ends(node: Node) -> None:
    """A container made after that would have no owner."""
    with no_room(2 * TRIES, node) as mgpud:
        command = [
            str(node.script),
            "--log",
            str(node.log),
            "create",
            "--bundle",
            str(node.root / "bundle"),
            "c1",
        ]
        subprocess.run(["sh", "-c", '"$@" 2> /dev/null & sleep 0.2', "sh", *command], check=True)
        until(lambda: node.log.exists() and LINE in node.log.read_text(), "it says no")
    assert 1 <= len(mgpud.requests) < TRIES
