"""The CDI spec of simulated cards: their device nodes and the simulated driver's two libraries.

A simulated node is the null device under NVIDIA's name: open() needs no driver, and the first ioctl is
caught. Source of the format: the Container Device Interface specification, version 0.6.0.
"""

import json
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from oci_specs import paths
from sim.cards import Card, cards

KIND = "sim.mgpu.dev/gpu"
VERSION = "0.6.0"
FILE_NAME = "sim.mgpu.dev-gpu.json"
LIBRARY_DIR = "/usr/lib/x86_64-linux-gnu"
LIBRARIES = ("libcuda.so.1", "libnvidia-ml.so.1")
# The name that programs without a version open, as nvidia-ctk links it.
LINKS = {"libcuda.so": "libcuda.so.1"}
CONTROL_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm")
NULL_MAJOR, NULL_MINOR = 1, 3


def _node(path: str, nodes: Path | None) -> dict[str, Any]:
    node = {
        "path": path,
        "type": "c",
        "major": NULL_MAJOR,
        "minor": NULL_MINOR,
        "fileMode": 0o666,
        "permissions": "rw",
    }
    return node | ({"hostPath": os.fspath(nodes / os.path.basename(path))} if nodes else {})


def _mount(library: str, host_path: str) -> dict[str, Any]:
    return {
        "hostPath": host_path,
        "containerPath": f"{LIBRARY_DIR}/{library}",
        "options": ["ro", "nosuid", "nodev", "bind"],
    }


def spec(found: Sequence[Card], libraries: dict[str, str], nodes: Path | None = None) -> dict[str, Any]:
    """The CDI spec of the cards, each named by its index and its UUID, and "all".

    libraries: host path of each of LIBRARIES and LINKS by its name. nodes: the host's folder with nodes to be
    mounted.
    """
    devices = []
    for card in found:
        edits = {"deviceNodes": [_node(f"/dev/nvidia{card.minor}", nodes)]}
        devices += [{"name": name, "containerEdits": edits} for name in (str(card.index), card.uuid)]
    every = [_node(f"/dev/nvidia{card.minor}", nodes) for card in found]
    devices.append({"name": "all", "containerEdits": {"deviceNodes": every}})
    return {
        "cdiVersion": VERSION,
        "kind": KIND,
        "devices": devices,
        "containerEdits": {
            "deviceNodes": [_node(path, nodes) for path in CONTROL_NODES],
            "mounts": [_mount(library, path) for library, path in libraries.items()],
        },
    }


def _made_nodes(folder: Path, cards: Sequence[str]) -> Path | None:
    """The folder with a node for each card: a container in a user namespace gets them by mounts.

    None where none can be made or opened.
    """
    folder.mkdir(mode=0o755, exist_ok=True)
    if os.statvfs(folder).f_flag & os.ST_NODEV:
        return None
    for name in (*cards, *map(os.path.basename, CONTROL_NODES)):
        node = folder / name
        if node.exists():
            continue
        try:
            os.mknod(node, stat.S_IFCHR, os.makedev(NULL_MAJOR, NULL_MINOR))
        except PermissionError:
            # mgpud's unit leaves it no CAP_MKNOD.
            return None
        node.chmod(0o666)
    return folder


def write(directory: Path, admin_socket: Path) -> Path:
    """Writes the spec of the socket's cards into `directory` atomically; its path."""
    found = cards(admin_socket)
    nodes = _made_nodes(admin_socket.parent / "dev", [f"nvidia{card.minor}" for card in found])
    libraries = {library: paths.lib(f"sim/{library}") for library in LIBRARIES}
    libraries |= {link: libraries[library] for link, library in LINKS.items()}
    document = spec(found, libraries, nodes)
    path = directory / FILE_NAME
    # CDI readers skip names that do not end in .json or .yaml.
    unfinished = path.with_suffix(".tmp")
    unfinished.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    os.replace(unfinished, path)
    return path
