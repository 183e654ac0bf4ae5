"""A node whose parts of mgpu are run by units or by pods: `mgpu install` set it up, and not `mgpu up`."""

from pathlib import Path

import pytest

from mgpu_cli.doctor import start
from tests.unit.doctor_support import ROOT, Node


@pytest.fixture
def node(tmp_path: Path) -> Node:
    made = Node(tmp_path)
    conf = made.path(f"{ROOT}/runtime.conf")
    made.write("/etc/mgpu/runtime.conf", conf.read_text())
    conf.unlink()
    made.path(f"{ROOT}/bin/mgpu-runtime").unlink()
    return made


def test_all_that_a_start_needs_is_there(node: Node) -> None:
    assert node.faults(start.GROUP) == {}


@pytest.mark.parametrize("lost", ["/etc/mgpu/runtime.conf", "/opt/hook"])
def test_no_container_starts_without_what_was_installed(node: Node, lost: str) -> None:
    node.path(lost).unlink()
    assert list(node.faults(start.GROUP)) == ["start-runtime"]
