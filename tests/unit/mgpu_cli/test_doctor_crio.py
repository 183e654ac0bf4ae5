"""mgpu doctor on a node with CRI-O."""

from pathlib import Path

import pytest

from mgpu_cli.doctor import crio
from mgpu_cli.doctor.finding import Level
from tests.unit.doctor_support import RUNTIME, Node

WARN, FAIL = Level.WARN, Level.FAIL


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


@pytest.mark.parametrize(
    ("selinux", "enforced", "allowed", "expected"),
    [
        ("true", "1", "0 0", {"crio-selinux": FAIL}),
        ("true", "1", "1 1", {}),
        ("true", "0", "0 0", {}),
        ("false", "1", "0 0", {}),
    ],
)
def test_crio_on_selinux(
    node: Node, selinux: str, enforced: str, allowed: str, expected: dict[str, Level]
) -> None:
    text = f'[crio.runtime]\nselinux = {selinux}\n[crio.runtime.runtimes.mgpu]\nruntime_path = "{RUNTIME}"\n'
    node.program("/usr/bin/crio", text, "config")
    node.program("/usr/bin/conmon")
    node.write("/sys/fs/selinux/enforce", enforced)
    node.write("/sys/fs/selinux/booleans/container_use_devices", allowed)
    assert node.faults(crio.GROUP) == expected


def test_crio(node: Node) -> None:
    node.program("/usr/libexec/crio/conmon")
    monitor = 'monitor_path = "/usr/libexec/crio/conmon"\n'
    ours = f'[crio.runtime.runtimes.mgpu]\nruntime_path = "{RUNTIME}"\n'
    for text, expected in (
        (ours, {"crio-monitor": FAIL}),
        (ours + monitor.replace("conmon", "gone"), {"crio-monitor": FAIL}),
        (ours + monitor, {}),
        (f'[crio.runtime]\nconmon = "/usr/libexec/crio/conmon"\n{ours}', {}),
        (f'{ours}runtime_type = "pod"\n', {}),
        ('[crio.runtime.runtimes.mgpu]\nruntime_path = "/x/mgpu-runtime"\n', {"crio-handler-path": FAIL}),
        ('[crio.runtime.runtimes.runc]\nruntime_path = ""\n', {"crio-handler": WARN}),
        ("[", {"crio-config": WARN}),
    ):
        node.program("/usr/bin/crio", text, "config")
        assert node.faults(crio.GROUP) == expected
