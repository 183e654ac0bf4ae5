"""containerd: what it says of itself over its own API, and the configuration that its program dumps."""

import tomllib
from collections.abc import Iterator
from typing import Any

from mgpu_cli.doctor import kubelet
from mgpu_cli.doctor.engines import SHIM, SHIM_TYPE, is_ours, not_passed, shown
from mgpu_cli.doctor.finding import Finding, Group, fail, note, ok, warn
from mgpu_cli.doctor.host import Host, NoAnswerError

SOCKET = "/run/containerd/containerd.sock"
# The CRI plugin's tables: configuration version 2 (1.x), version 3 (2.x).
PLUGINS = ("io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime")
LISTS = ("pod_annotations", "container_annotations")
INSTALL = "mgpu install containerd"
# Below kubelet's root, as long as mgpu-node offers claims (cluster/dra/server.py).
CLAIMS_SOCKET = "plugins/mgpu.dev/dra.sock"
Table = dict[str, Any]


def _handlers(config: Table) -> dict[str, Table]:
    plugins = config.get("plugins", {})
    for plugin in PLUGINS:
        found = plugins.get(plugin, {}).get("containerd", {}).get("runtimes", {})
        if found:
            return {name: entry for name, entry in found.items() if isinstance(entry, dict)}
    return {}


def _ours(handlers: dict[str, Table]) -> dict[str, Table]:
    return {
        name: entry
        for name, entry in handlers.items()
        if entry.get("runtime_type") == SHIM_TYPE or is_ours(entry.get("options", {}).get("BinaryName"))
    }


def answers(host: Host) -> Iterator[Finding]:
    if not host.is_socket(SOCKET):
        if host.which("containerd"):
            yield note(
                "containerd-stopped",
                f"containerd is installed and nobody is at {SOCKET}",
                "Docker's own is asked through Docker",
                "systemctl start containerd",
            )
        return
    facts = host.containerd(str(host.path(SOCKET)))
    if facts.error:
        yield warn(
            "containerd-silent",
            f"containerd at {SOCKET}: {facts.error}",
            "mgpud goes on without it: names are missing, and pauses are seen by the kernel alone",
            "systemctl status containerd",
        )
        return
    yield ok("containerd-version", f"containerd {facts.version} answers")
    if not facts.serves_kubernetes:
        reason = next((facts.broken[each] for each in PLUGINS if each in facts.broken), "it is not loaded")
        yield note(
            "containerd-cri",
            "containerd's CRI plugin does not serve",
            f"Kubernetes cannot use this containerd ({reason}); ctr and nerdctl can",
        )
        return
    yield from _handlers_of(host)


def _handlers_of(host: Host) -> Iterator[Finding]:
    program = host.which("containerd")
    if program is None:
        return
    try:
        config = tomllib.loads(host.run([program, "config", "dump"]))
    except (NoAnswerError, tomllib.TOMLDecodeError) as error:
        yield warn(
            "containerd-config",
            f"containerd does not take its configuration: {error}",
            "",
            "containerd config dump",
        )
        return
    yield from _cdi(host, config)
    found = _ours(_handlers(config))
    if not found:
        yield warn(
            "containerd-handler",
            "containerd has no CRI handler of mgpu's",
            "pods cannot have a share of a GPU",
            INSTALL,
        )
    for name, entry in found.items():
        yield from _handler(host, name, entry)


def _cdi(host: Host, config: Table) -> Iterator[Finding]:
    """Whether the CDI devices of claims reach containers: without them a pod runs and has no GPU.

    enable_cdi came with containerd 1.7, where it is false unless set; from 2.0 on it is true.
    """
    plugins = config.get("plugins", {})
    said = [plugins.get(each, {}).get("enable_cdi") for each in PLUGINS]
    # containerd 2 has tables of both names.
    enabled = next((each for each in said if each is not None), None)
    if enabled or not host.path(kubelet.ROOT).is_dir():
        return
    why = "enable_cdi is false" if enabled is False else "it came with containerd 1.7"
    line = "set enable_cdi = true and restart containerd" if enabled is False else "install containerd 2.0"
    if host.is_socket(f"{kubelet.ROOT}/{CLAIMS_SOCKET}"):
        yield fail(
            "containerd-cdi",
            f"containerd hands on no CDI devices ({why}), and this node offers its GPUs by claims",
            "pods with claims run without a GPU",
            line,
        )
    else:
        yield note(
            "containerd-cdi",
            f"containerd hands on no CDI devices ({why}): GPUs cannot be offered by claims here",
            "resources and annotations need none",
            line,
        )


def _handler(host: Host, name: str, entry: Table) -> Iterator[Finding]:
    binary = entry.get("options", {}).get("BinaryName")
    if is_ours(binary) and not host.is_program(binary):
        yield fail(
            "containerd-binary",
            f"containerd's handler {name} is {binary}, which is not there",
            "pods with it do not start",
            INSTALL,
        )
    elif entry.get("runtime_type") == SHIM_TYPE and host.which(SHIM) is None:
        yield fail(
            "containerd-shim",
            f"containerd's handler {name} needs {SHIM}, which is not on PATH",
            "pods with it do not start",
            INSTALL,
        )
    else:
        yield ok("containerd-handler", f"containerd has mgpu as the handler {name}")
    for key in LISTS:
        patterns = [each for each in entry.get(key, []) if isinstance(each, str)]
        missing = not_passed(patterns)
        if missing:
            yield warn(
                f"containerd-{key.replace('_', '-')}",
                f"{key} of the handler {name} lets {shown(missing)} not through",
                "what a pod asks for there never reaches mgpu; * does not match a /",
                INSTALL,
            )


GROUP = Group("containerd", (answers,))
