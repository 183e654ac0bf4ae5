"""This node, as mgpud last told it, and who waits to hear of it."""

import asyncio
from dataclasses import dataclass, field, replace
from pathlib import Path

from cluster.api.client import Api
from cluster.node.lent import Lent
from cluster.node.mgpud import Mgpud
from cluster.process.conditions import Conditions, to_stderr
from cluster.resources.inventory import Inventory
from oci_specs.refusal import Refusal
from placement import others

LOOK_S = 1.0
# mgpud is back within a second from whatever ends it; what takes longer keeps new pods away.
AWAY_S = 10.0


@dataclass
class Node:
    """name: as the API server has it. kubelet: its root directory. api: None where there is none to speak to.

    by_claims: the cards are devices of dynamic resource allocation, and no resources: neither of two
    ways would know of what the other has given out.

    inventory: None until mgpud has answered once. serving: whether new containers would be admitted.
    is_leaving: this process is about to end: what has been sent here is served, and nothing new is to come.
    """

    name: str
    mgpud: Mgpud
    kubelet: Path
    api: Api | None = None
    opt_in: bool = False
    by_claims: bool = False
    conditions: Conditions = field(default_factory=lambda: Conditions(to_stderr("mgpu-node")))
    inventory: Inventory | None = None
    serving: bool = False
    is_leaving: bool = False
    _changes: int = 0
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    @property
    def resources(self) -> Inventory | None:
        """The inventory as far as it is offered by resources."""
        if self.inventory is None or not self.by_claims:
            return self.inventory
        return replace(self.inventory, cards=())

    async def changed(self, seen: int = 0) -> int:
        """Waits until there is an inventory that is newer than `seen`; returns what to wait on next."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._changes > seen)
            return self._changes

    async def become(self, inventory: Inventory | None, serving: bool) -> None:
        """Keeps mgpud's answer, None for no answer, and wakes those that wait if it is new."""
        if (inventory, serving) == (self.inventory, self.serving):
            return
        self.inventory, self.serving = inventory, serving
        async with self._changed:
            self._changes += 1
            self._changed.notify_all()

    async def follow(self) -> None:
        """For ever: asks mgpud what there is."""
        loop = asyncio.get_running_loop()
        answered, lent = loop.time(), Lent()
        while True:
            try:
                inventory = await self.mgpud.inventory()
            except Refusal as refusal:
                self.conditions.set("mgpud", f"{refusal.message}; {refusal.hint}")
                if self.inventory is not None and loop.time() - answered > AWAY_S:
                    await self.become(self.inventory, serving=False)
            else:
                answered = loop.time()
                self.conditions.clear("mgpud", "mgpud answers again")
                self._tell_lost(inventory)
                # A container that was made with a claim does not give way.
                said = inventory.without_lending() if self.by_claims else lent.calm(inventory, answered)
                await self.become(said, serving=not self._has_others() and not self._cannot_start(inventory))
            await asyncio.sleep(LOOK_S)

    def _has_others(self) -> bool:
        """Whether NVIDIA's own plugin is here: a GPU is handed out by one of them only."""
        found = others.nvidia_plugins(self.kubelet)
        if found:
            self.conditions.set(
                "others",
                f"NVIDIA's own plugin hands out this node's GPUs too ({', '.join(found)}), so that nothing new is "
                f"placed here; kubectl label node {self.name} nvidia.com/gpu.deploy.device-plugin=false",
            )
        else:
            self.conditions.clear("others", "NVIDIA's own plugin is gone")
        return bool(found)

    def _cannot_start(self, inventory: Inventory) -> bool:
        if inventory.missing:
            text = f"no container with a GPU starts on node {self.name}: {'; '.join(inventory.missing)}"
            self.conditions.set("start", f"{text}; mgpu doctor, there, says what to type")
        else:
            self.conditions.clear("start", f"containers with a GPU start on node {self.name} again")
        return bool(inventory.missing)

    def _tell_lost(self, inventory: Inventory) -> None:
        for card in inventory.cards:
            if not card.healthy:
                self.conditions.set(
                    f"GPU {card.uuid}", f"GPU {card.index} ({card.uuid}) is lost: its share is not offered"
                )
            else:
                self.conditions.clear(f"GPU {card.uuid}", f"GPU {card.index} ({card.uuid}) is back")
