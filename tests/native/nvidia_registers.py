"""A simulated card's registers, as mig_on_card.c places them, and the capabilities by which it tells where
they are.
"""

import struct
from collections.abc import Sequence
from pathlib import Path

BYTES = 1 << 20


class Registers:
    """Of a card with these MIG instances, (GPU instance, compute instance); its nodes are in that folder."""

    def __init__(self, nodes: Path, pci: str, instances: Sequence[tuple[int, int]]) -> None:
        self._instances = instances
        self._bar = nodes / "pci" / pci.lower().removeprefix("0000") / "resource0"
        self._bar.parent.mkdir(parents=True)
        self._bar.write_bytes(bytes(BYTES))
        with (nodes / "mig-minors").open("a") as minors:
            for gpu, compute in instances:
                for name, minor in ((f"gi{gpu}", gpu), (f"gi{gpu}/ci{compute}", 10 * gpu + compute)):
                    print(f"gpu0/{name}/access {minor}", file=minors)
                    (nodes / "nvidia-caps" / f"nvidia-cap{minor}").touch()

    def executes(self, card: int, tsg: int | None, *, copies: bool = False) -> None:
        """The instance's engine of graphics, or its copy engine, has that group; None: it has nothing to
        do."""
        gpu, compute = self._instances[card]
        with self._bar.open("r+b") as bar:
            bar.seek((gpu << 16 | compute << 12 | copies << 11) + 0x200)
            bar.write(struct.pack("I", 0 if tsg is None else 1 << 31 | tsg))
