"""The CDI spec of the cards here, from the driver files that there are. The containers' root is the machine's own,
which has the libraries: the spec brings the nodes alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from native_sched.daemon.inventory import CardInfo

NODES = ("nvidiactl", "nvidia-uvm")


def spec(cards: list[CardInfo], dev: Path = Path("/dev")) -> dict[str, Any]:
    """Each card by its index and its UUID. nvidia-caps is not there: instances of MIG need it, and are not tried."""
    common = [{"path": f"/dev/{name}", "permissions": "rw"} for name in NODES if (dev / name).exists()]
    devices = [
        {
            "name": name,
            "containerEdits": {"deviceNodes": [{"path": f"/dev/nvidia{card.minor}", "permissions": "rw"}]},
        }
        for card in cards
        if card.instance is None
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
