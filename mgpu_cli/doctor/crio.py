"""CRI-O, by the configuration that its program prints. It hands all of a pod's annotations on."""

import tomllib
from collections.abc import Iterator
from typing import Any

from mgpu_cli.doctor.engines import is_ours
from mgpu_cli.doctor.finding import Finding, Group, fail, ok, warn
from mgpu_cli.doctor.host import Host, NoAnswerError


def known_runtime(host: Host) -> Iterator[Finding]:
    program = host.which("crio")
    if program is None:
        return
    try:
        config = tomllib.loads(host.run([program, "config"]))
    except (NoAnswerError, tomllib.TOMLDecodeError) as error:
        yield warn("crio-config", f"CRI-O does not take its configuration: {error}", "", "crio config")
        return
    runtime = config.get("crio", {}).get("runtime", {})
    yield from _labels(host, runtime)
    handlers = runtime.get("runtimes", {})
    ours = {name: entry for name, entry in handlers.items() if is_ours(entry.get("runtime_path"))}
    if not ours:
        yield warn(
            "crio-handler",
            "CRI-O has no handler of mgpu's",
            "pods cannot have a share of a GPU",
            "mgpu install crio",
        )
    for name, entry in ours.items():
        path = entry["runtime_path"]
        if not host.is_program(path):
            yield fail(
                "crio-handler-path",
                f"CRI-O's handler {name} is {path}, which is not there",
                "pods with it do not start",
                "mgpu install crio",
            )
        elif not _monitored(host, runtime, entry):
            yield fail(
                "crio-monitor",
                f"conmon is not on PATH, and CRI-O's handler {name} does not say where it is",
                "CRI-O does not start",
                "mgpu install crio",
            )
        else:
            yield ok("crio-handler", f"CRI-O has mgpu as the handler {name}")


def _monitored(host: Host, runtime: dict[str, Any], handler: dict[str, Any]) -> bool:
    """Whether CRI-O finds the handler's monitor; one of another type may have another."""
    named = runtime.get("conmon") or handler.get("monitor_path")
    if handler.get("runtime_type") not in (None, "", "oci"):
        return True
    return host.is_program(named) if named else host.which("conmon") is not None


def _labels(host: Host, runtime: dict[str, Any]) -> Iterator[Finding]:
    """Devices that container-selinux lets a labelled container use."""
    allowed = (host.text("/sys/fs/selinux/booleans/container_use_devices") or "").split()
    enforced = (host.text("/sys/fs/selinux/enforce") or "").strip() == "1"
    if enforced and runtime.get("selinux") is True and allowed[:1] == ["0"]:
        yield fail(
            "crio-selinux",
            "SELinux keeps CRI-O's containers from devices (container_use_devices is off)",
            "a container with a GPU cannot open its nodes",
            "setsebool -P container_use_devices on",
        )


GROUP = Group("crio", (known_runtime,))
