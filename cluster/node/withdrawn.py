"""A node in the API server before mgpu is taken off it: no label, inventory, capacity or slice of mgpu's."""

import asyncio
from typing import Any

import click

from cluster.api.client import Api, Client
from cluster.api.errors import ApiProblem
from cluster.api.kinds import NODE, RESOURCE_SLICE
from cluster.dra import slices
from cluster.node.published import SERVING
from cluster.resources import table
from cluster.resources.inventory import ANNOTATION

# A node process that is being ended may write once more.
SETTLE_S = 5.0
_CAPACITIES = frozenset({*(each.name for each in table.RESOURCES if each.by == "status"), table.GIB_KEY})


async def run(name: str, kubeconfig: str | None) -> None:
    """Until nothing has come back to the node for SETTLE_S. ApiProblem."""
    async with Client(kubeconfig) as api:
        while await withdraw(name, api):
            click.echo(f"node {name} offers no GPUs of mgpu any more; looking whether that stays so")
            await asyncio.sleep(SETTLE_S)


async def withdraw(name: str, api: Api) -> bool:
    """Takes away what is there; whether there was anything. ApiProblem."""
    node = await api.get(NODE, name)
    metadata = {
        which: {key: None}
        for which, key in (("labels", SERVING), ("annotations", ANNOTATION))
        if key in (node["metadata"].get(which) or {})
    }
    said = node.get("status") or {}
    status = {which: gone for which in ("capacity", "allocatable") if (gone := _gone(said.get(which) or {}))}
    patch = {which: value for which, value in (("metadata", metadata), ("status", status)) if value}
    if patch:
        await api.merge(NODE, name, patch, status=True)
    published = await _slices(name, api)
    for each in published:
        await api.delete(RESOURCE_SLICE, each["metadata"]["name"])
    return bool(patch or published)


def _gone(amounts: dict[str, str]) -> dict[str, None]:
    """kubelet keeps what a plugin of an earlier time had as 0."""
    return {name: None for name, amount in amounts.items() if name in _CAPACITIES and amount != "0"}


async def _slices(name: str, api: Api) -> list[dict[str, Any]]:
    try:
        found, _ = await api.list(RESOURCE_SLICE, fields=slices.selects(name))
    except ApiProblem as problem:
        if not problem.is_gone:
            raise
        return []  # a cluster without claims
    return found
