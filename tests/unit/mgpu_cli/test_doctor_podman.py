"""podman on a node where it is slow to answer."""

from pathlib import Path

from mgpu_cli.doctor import podman
from mgpu_cli.doctor.finding import Level
from tests.unit.doctor_support import RUNTIME, Node


def test_podman_that_is_slow_is_judged_by_its_configuration(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.with_podman(runtimes=f'mgpu = ["{RUNTIME}"]')
    del node.printed["/usr/bin/podman info --format json"]
    assert node.faults(podman.GROUP) == {}
    node.path("/etc/containers/containers.conf.d/99-mgpu.conf").unlink()
    assert node.faults(podman.GROUP) == {"podman-silent": Level.WARN}
