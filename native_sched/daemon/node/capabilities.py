"""MIG capabilities: the nodes below /dev/nvidia-caps whose descriptors the driver takes for the right to an
instance.

Which node is whose, the driver says in a file: lines such as "gpu0/gi1/ci0/access 13", a name and a minor
number. The number of the GPU is that of its node /dev/nvidia0.
"""

import re
from collections.abc import Mapping
from typing import Any

from oci_specs.refusal import Refusal

MINORS = "/proc/driver/nvidia-caps/mig-minors"
FOLDER = "/dev/nvidia-caps"
_NODE = re.compile(rf"{FOLDER}/nvidia-cap([0-9]+)")


def minors(path: str = MINORS) -> dict[str, int]:
    """Minor numbers by name; empty where the driver has no MIG."""
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            words = [line.split() for line in file]
    except OSError:
        return {}
    return {
        name: int(minor) for name, minor in (pair for pair in words if len(pair) == 2) if minor.isdecimal()
    }


def needed(gpu_minor: int, instance: tuple[int, int]) -> tuple[str, str]:
    """Names of the capabilities of an instance: (GPU instance, compute instance)."""
    gpu, compute = instance
    return f"gpu{gpu_minor}/gi{gpu}/access", f"gpu{gpu_minor}/gi{gpu}/ci{compute}/access"


def check(
    edits: Mapping[str, Any],
    instances: Mapping[str, tuple[int, tuple[int, int]]],
    known: Mapping[str, int],
) -> set[int]:
    """Minor numbers of the capabilities of these instances, which are all that the edits bring; Refusal where
    they bring others, or lack one.

    instances: by UUID, the GPU's minor and (GPU instance, compute instance).
    """
    brought = {
        int(found[1]) for device in edits["devices"] if (found := _NODE.fullmatch(str(device["path"])))
    }
    brought |= {
        int(device["minor"]) for device in edits["devices"] if str(device["path"]).startswith(f"{FOLDER}/")
    }
    allowed = set()
    for uuid, (gpu_minor, instance) in instances.items():
        for name in needed(gpu_minor, instance):
            if name not in known:
                raise Refusal(
                    "no-capability",
                    f"the driver has no capability {name}, which {uuid} needs",
                    "look into /proc/driver/nvidia-caps/mig-minors: was the instance removed? then restart mgpud",
                )
            if known[name] not in brought:
                raise Refusal(
                    "cdi-capability",
                    f"the CDI spec of {uuid} does not bring /dev/nvidia-caps/nvidia-cap{known[name]} ({name})",
                    "write it anew with nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml",
                )
            allowed.add(known[name])
    if foreign := sorted(brought - allowed):
        raise Refusal(
            "cdi-capability",
            f"the CDI specs bring /dev/nvidia-caps/nvidia-cap{foreign[0]}, which is of no instance of this container",
            "write them anew with nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml",
        )
    return allowed
