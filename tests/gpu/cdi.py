"""The CDI spec of the cards here, from the driver files that there are. The containers' root is the machine's
own, which has the libraries: the spec brings the nodes alone.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from native_sched.daemon.node import capabilities
from native_sched.daemon.node.inventory import CardInfo

NODES = ("nvidiactl", "nvidia-uvm")


def nodes_of(card: CardInfo, minors: Mapping[str, int]) -> list[str]:
    """An instance of MIG is its GPU's node and two capabilities."""
    needed = capabilities.needed(card.minor, card.instance) if card.instance else ()
    return [f"nvidia{card.minor}", *(f"nvidia-caps/nvidia-cap{minors[name]}" for name in needed)]


def spec(
    cards: list[CardInfo], dev: Path = Path("/dev"), minors: Mapping[str, int] | None = None
) -> dict[str, Any]:
    """Each card, or instance of MIG, by its index and its UUID."""
    known = capabilities.minors() if minors is None else minors
    common = [{"path": f"/dev/{name}", "permissions": "rw"} for name in NODES if (dev / name).exists()]
    devices = [
        {
            "name": name,
            "containerEdits": {
                "deviceNodes": [
                    {"path": f"/dev/{node}", "permissions": "rw"} for node in nodes_of(card, known)
                ]
            },
        }
        for card in cards
        for name in (str(card.index), card.uuid)
    ]
    return {
        "cdiVersion": "0.6.0",
        "kind": "nvidia.com/gpu",
        "devices": devices,
        "containerEdits": {"deviceNodes": common},
    }


def write(folder: Path, cards: list[CardInfo]) -> Path:
    path = folder / "nvidia.json"
    path.write_text(json.dumps(spec(cards), indent=1) + "\n")
    return path
