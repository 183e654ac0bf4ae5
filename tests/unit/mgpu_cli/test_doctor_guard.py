"""What doctor says of the guard, which keeps NVIDIA's open files from processes without a grant."""

import os
from pathlib import Path

import pytest

from mgpu_cli.doctor import kernel, leftovers
from mgpu_cli.doctor.finding import Level
from tests.unit.doctor_support import Node


@pytest.fixture
def node(tmp_path: Path) -> Node:
    there = Node(tmp_path)
    there.write("/sys/kernel/security/lsm", "lockdown,yama,bpf\n")
    return there


def receive(node: Node) -> tuple[Level, str]:
    [found] = [each for each in node.findings(kernel.GROUP) if each.id == "kernel-file-receive"]
    return found.level, found.what


def test_program_that_is_pinned_is_well(node: Node) -> None:
    node.write(kernel.RECEIVE, "")
    level, _ = receive(node)
    assert level is Level.OK


def test_user_is_told_that_root_sees_it(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    def exists(path: Path) -> bool:
        if "bpf" in path.parts:
            raise PermissionError
        return os.path.exists(path)

    monkeypatch.setattr(Path, "exists", exists)
    level, what = receive(node)
    assert (level, "only root" in what) == (Level.NOTE, True)
    assert node.faults(leftovers.GROUP) == {}


def test_program_without_mgpud_is_left_over(node: Node) -> None:
    node.write(kernel.RECEIVE, "")
    assert node.faults(leftovers.GROUP) == {}
    node.path("/proc/100/cmdline").unlink()
    assert node.faults(leftovers.GROUP) == {"leftover-guard": Level.WARN}
    assert node.only(leftovers.GROUP).line == f"rm -r {kernel.GUARD}"
