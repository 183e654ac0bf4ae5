"""kubelet's folder: whether somebody beside mgpu hands out the same GPUs."""

from collections.abc import Iterator

from mgpu_cli.doctor.finding import Finding, Group, fail
from mgpu_cli.doctor.host import Host
from placement.others import nvidia_plugins

ROOT = "/var/lib/kubelet"


def others(host: Host) -> Iterator[Finding]:
    found = nvidia_plugins(host.path(ROOT))
    if found and host.driver != "sim":
        yield fail(
            "two-plugins",
            f"NVIDIA's own plugin hands out this node's GPUs too ({', '.join(found)})",
            "its pods use them without a cap, and mgpu places nothing new here meanwhile",
            "kubectl label node NODE nvidia.com/gpu.deploy.device-plugin=false",
        )


GROUP = Group("kubelet", (others,))
