"""The node's own settings, from one TOML file in which every key may be left out."""

import os
import zlib
from dataclasses import dataclass
from typing import Any, Literal

from oci_specs.driver_capabilities import KNOWN
from oci_specs.refusal import Refusal
from placement.rules import Rules


@dataclass(frozen=True, kw_only=True)
class NodeConfig(Rules):
    """Settings of one node; schemas/node_config.schema.json gives the same keys, ranges and defaults.

    docs/node.md tells operators of each.
    """

    # Whether containers that can start processes outside the filter may run; they are shown as advisory.
    allow_privileged: bool = False
    # Whether a pod's container asks by its environment too, which admission and quotas do not see, and which
    # may be its image's.
    environment_in_pods: bool = False
    # What one of aliyun.com/gpu-mem is. ACK's device plugin counts GiB units unless it was set to MiB.
    aliyun_unit: Literal["gib", "mib"] = "gib"
    # What NVIDIA_VISIBLE_DEVICES=all alone asks for. CUDA base images set it, so on most nodes it asks for
    # nothing.
    visible_devices_all: Literal["ignore", "whole-cards"] = "ignore"
    # Which driver capabilities containers may have by NVIDIA_DRIVER_CAPABILITIES, whose "all" is these.
    supported_driver_capabilities: tuple[str, ...] = KNOWN
    # Seconds that an admitted container keeps its reservation before it is bound: longer than any engine
    # takes from create to its hooks.
    lease_seconds: int = 60
    # What becomes of a container whose main process has lost its listener: its calls fail for good, and an
    # engine starts anew only what has ended.
    lost_listener: Literal["end", "keep"] = "end"
    # Where CDI specs are read from, later ones over earlier ones.
    cdi_dirs: tuple[str, ...] = ("/etc/cdi", "/var/run/cdi")
    # Sockets of the containerds that name containers and tell when one is paused, as far as they are there:
    # its own, Docker's, k3s's.
    containerd: tuple[str, ...] = (
        "/run/containerd/containerd.sock",
        "/run/docker/containerd/containerd.sock",
        "/run/k3s/containerd/containerd.sock",
    )
    # Whether work is scheduled at all: without it containers have their memory caps and the cards share their
    # time out by themselves.
    schedule: bool = True
    # Milliseconds that offline stays off after the last online work has completed, so that online's own
    # pauses between kernels do not let offline in.
    hold_ms: int = 100
    # Milliseconds for which online's channels have had nothing to fetch before it counts as idle, before the
    # hold, on a card whose engines cannot be seen.
    quiet_ms: int = 5
    # Microseconds between two looks at an idle online container beside running offline work: how long online
    # waits for the card at most, against the arbiter's own use of a CPU.
    poll_fast_us: int = 500
    # ... where nothing is urgent.
    poll_slow_us: int = 1000
    # Whether offline containers that say so may hold memory that online ones were granted and do not use.
    offline_overcommit: bool = False
    # Milliseconds that an online allocation waits for such memory before it gets the driver's answer.
    evict_wait_ms: int = 30000
    # Milliseconds that the submitted work of a container has, beside online, to complete for its eviction.
    evict_drain_ms: int = 1000
    # Milliseconds for which there was room for all of an evicted container before it is restored.
    restore_hold_ms: int = 1000
    # For a container that cannot be evicted while online waits: it keeps its memory, or it is
    # ended.
    unevictable: Literal["keep", "end"] = "keep"
    # A loopback HOST:PORT where metrics are served to every user of the node, beside ROOT/metrics.sock, which
    # is root's.
    metrics_listen: str = ""
    # The driver version whose interface is assumed instead of that of the running driver, such as 580; empty:
    # none.
    driver_table: str = ""
    # MiB of video memory that NVIDIA's driver takes by itself for a channel group of the graphics engine, and
    # for one of a copy engine: charged, since no call asks for it. What they are on a card,
    # tests/gpu/bringup.sh measures.
    context_mib: int = 0
    copy_context_mib: int = 0


def from_table(table: dict[str, Any]) -> NodeConfig:
    """The config that a parsed TOML table gives; Refusal for an unknown key or a value that is not
    allowed."""
    from oci_specs import schemas

    if error := schemas.first_error("node_config", table):
        from native_sched.daemon.node import config_refusal as refusals

        raise refusals.bad_table(table, [str(step) for step in error.absolute_path])
    return _config(table)


def _config(table: dict[str, Any]) -> NodeConfig:
    """The config that a table gives which is known to be good."""
    fields = dict(table)
    for name in ("supported_driver_capabilities", "cdi_dirs", "containerd"):
        if name in fields:
            fields[name] = tuple(fields[name])
    return NodeConfig(**fields)


def load(path: str | os.PathLike[str]) -> NodeConfig:
    """The config in the file, the defaults where there is no file; Refusal that names the file and the
    fault."""
    return load_known(path, "")[0]


def load_known(path: str | os.PathLike[str], known_good: str) -> tuple[NodeConfig, str]:
    """The config in the file, as load() does, and the checksum of its text.

    known_good: the checksum of a text that was found good before. It is not checked again: to load what does
    that takes longer than all else that mgpud does before it serves.
    """
    try:
        data = _read(path)
        checksum = f"{zlib.crc32(data):08x}"
        table = _table(data)
        return (_config(table) if checksum == known_good else from_table(table)), checksum
    except Refusal as refusal:
        raise Refusal(refusal.code, f"{os.fspath(path)}: {refusal.message}", refusal.hint) from refusal


def _read(path: str | os.PathLike[str]) -> bytes:
    """Nothing where there is no file."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return b""
    except OSError as error:
        from native_sched.daemon.node import config_refusal as refusals

        raise refusals.unreadable(error) from error


def _table(data: bytes) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(data.decode())
    # decode()'s and tomllib's own errors, and int()'s, which tomllib lets through for a number of thousands
    # of digits.
    except ValueError as error:
        from native_sched.daemon.node import config_refusal as refusals

        raise refusals.not_toml(data, error) from error
