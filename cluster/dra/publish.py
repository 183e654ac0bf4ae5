"""Keeps the API server's ResourceSlices of this node as mgpud's inventory is."""

import asyncio
from typing import Any

from cluster.api.client import Api
from cluster.api.errors import ApiProblem
from cluster.api.follow import Changed, Deleted, Listed, follow
from cluster.api.kinds import NODE, RESOURCE_SLICE
from cluster.dra import slices
from cluster.dra.devices import Kept, as_kept
from cluster.dra.host import Node
from oci_specs.refusal import Refusal

Json = dict[str, Any]
_PAUSE_S = 2.0
# Changes come in bursts: one write for all of them.
_SETTLE_S = 0.1


class Slices:
    def __init__(self, node: Node, api: Api) -> None:
        self._node = node
        self._api = api
        # As the watch tells: an answer to a write of ours may be older than what it told last.
        self._there: dict[str, Json] = {}
        self._generation = 0
        self._due = asyncio.Event()
        self._listed = asyncio.Event()
        self._driver_version = ""
        self.kept = Kept()

    async def run(self) -> None:
        """For ever. Slices that others change are put right."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow())
            group.create_task(self._hear())
            group.create_task(self._keep())

    async def _follow(self) -> None:
        fields = slices.selects(self._node.name)
        tell = lambda line: self._node.conditions.set("slices", line)  # noqa: E731
        async for change in follow(self._api, RESOURCE_SLICE, fields=fields, tell=tell):
            match change:
                case Listed(objects):
                    self._there = {each["metadata"]["name"]: each for each in objects}
                    self._listed.set()
                case Changed(value):
                    self._there[value["metadata"]["name"]] = value
                case Deleted(value):
                    self._there.pop(value["metadata"]["name"], None)
            self._due.set()

    async def _hear(self) -> None:
        seen = 0
        while True:
            seen = await self._node.changed(seen)
            self._due.set()

    async def _keep(self) -> None:
        await self._listed.wait()
        while True:
            await self._due.wait()
            await asyncio.sleep(_SETTLE_S)
            self._due.clear()
            try:
                await self._write()
                self._node.conditions.clear("slices", "ResourceSlices are published")
            except (ApiProblem, Refusal) as problem:
                self._node.conditions.set(
                    "slices", f"ResourceSlices are not published: {problem}; trying again"
                )
                await asyncio.sleep(_PAUSE_S)
                self._due.set()

    async def _write(self) -> None:
        inventory = self._node.inventory
        if inventory is None:
            return
        if self._node.serving:
            self._driver_version = await self._node.mgpud.driver_version()
        node = await self._api.get(NODE, self._node.name)
        offered = slices.devices(inventory, self._driver_version, self._node.serving, self.kept)
        there = list(self._there.values())
        generation = max(self._generation, slices.generation(there)) + 1
        wanted = slices.built(node, offered, generation)
        if slices.same(there, wanted):
            return
        self._generation = generation
        kept = self.kept
        for each in wanted:
            kept = kept & _kept(each, await self._api.apply(RESOURCE_SLICE, each))
        for name in self._there.keys() - {each["metadata"]["name"] for each in wanted}:
            await self._delete(name)
        if kept != self.kept:
            self._say(kept)
            # Once more, without what the API server drops.
            self.kept = kept
            self._due.set()

    async def _delete(self, name: str) -> None:
        try:
            await self._api.delete(RESOURCE_SLICE, name)
        except ApiProblem as problem:
            if not problem.is_gone:
                raise

    def _say(self, kept: Kept) -> None:
        if self.kept.consumable and not kept.consumable:
            self._node.conditions.set(
                "consumable",
                "this cluster has no consumable capacity (feature DRAConsumableCapacity): claims get whole GPUs",
            )
        if self.kept.taints and not kept.taints:
            self._node.conditions.set(
                "taints",
                "this cluster has no device taints (feature DRADeviceTaints): a lost GPU leaves its ResourceSlice",
            )


def _kept(wanted: Json, written: Json) -> Kept:
    found = {each["name"]: each for each in written["spec"].get("devices") or []}
    kept = Kept()
    for device in wanted["spec"]["devices"]:
        kept = kept & as_kept(found.get(device["name"], {}), device)
    return kept
