"""Specs that engines wrote, and a host that they are judged on."""

import copy
import json
from pathlib import Path
from typing import Any

from oci_specs import edits
from oci_specs.reach import Host, nvidia_majors, reach

# Written by the engines named, by `docker run`, `ctr run` and so on with the option named; made shorter.
SPECS = Path(__file__).with_name("specs")

UVM, CAPS = 511, 237

PROC_DEVICES = f"""Character devices:
  1 mem
195 nvidia
195 nvidiactl
{CAPS} nvidia-caps
{UVM} nvidia-uvm

Block devices:
  7 loop
  9 nvidia-no-such-block-device
"""


class FakeHost(Host):
    """links: where symbolic links lead; nodes: majors of character devices."""

    def __init__(
        self,
        links: dict[str, str] | None = None,
        nodes: dict[str, int] | None = None,
        *,
        rootless: bool = False,
        any_type_keeps_numbers: bool = False,
        drm: set[int] | None = None,
    ) -> None:
        super().__init__()
        self.drm = frozenset(drm or ())
        self.rootless = rootless
        self.keeps = any_type_keeps_numbers
        self.links = links or {}
        self.nodes = nodes or {}

    def majors(self) -> frozenset[int]:
        return nvidia_majors(PROC_DEVICES)

    def drm_minors(self) -> frozenset[int]:
        return self.drm

    def resolve(self, path: str) -> str:
        return self.links.get(path, path)

    def is_rootless(self) -> bool:
        return self.rootless

    def any_type_keeps_numbers(self) -> bool:
        return self.keeps

    def character_major(self, path: str) -> int | None:
        return self.nodes.get(path)


def load(name: str) -> dict[str, Any]:
    spec: dict[str, Any] = json.loads((SPECS / f"{name}.json").read_text())
    return spec


def ways(spec: dict[str, Any], host: Host | None = None) -> list[tuple[str, str]]:
    return [(way["how"], way["detail"]) for way in reach(spec, "/bundle", host or FakeHost())]


DENY_ALL = {"allow": False, "access": "rwm"}


def bind(source: str, **more: Any) -> dict[str, Any]:
    return {"destination": "/mnt", "type": "bind", "source": source, "options": ["rbind"], **more}


SOCKET, LISTENER = Path("/run/mgpu/mgpud.sock"), Path("/run/mgpu/seccomp.sock")

HOOK = "/opt/mgpu/libexec/mgpu/mgpu-hook"


def apply(spec: dict[str, Any], given: dict[str, Any], host: FakeHost | None = None) -> dict[str, Any]:
    before = copy.deepcopy((spec, given))
    new = edits.apply(
        spec, given, bundle="/bundle", hook=HOOK, original_sha256="ab" * 32, host=host or FakeHost()
    )
    assert (spec, given) == before, "the arguments were changed"
    return new
