"""The node's prepared claims: prepared and unprepared for kubelet, and kept so whatever ends meanwhile.

mgpud keeps them over its own restarts; a file for each tells which ones it has to know where it lost them.
"""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

from cluster.api.client import Api
from cluster.api.errors import ApiProblem
from cluster.api.follow import Changed, Deleted, follow
from cluster.api.kinds import POD, RESOURCE_CLAIM
from cluster.dra import allocation, devices
from cluster.dra.allocation import Allocated
from cluster.dra.cdi_files import CdiFiles
from cluster.dra.host import Node
from oci_specs.claim import Claim
from oci_specs.refusal import Refusal

Json = dict[str, Any]


class PreparedClaims:
    """cdi: where the container engine looks for CDI specs."""

    def __init__(self, node: Node, api: Api, cdi: Path) -> None:
        self._node = node
        self._api = api
        self._files = CdiFiles(cdi)
        # One change at a time, from what is read until it is written: mgpud and the files are to say the
        # same.
        self._lock = asyncio.Lock()

    async def prepare(self, namespace: str, name: str, uid: str) -> list[tuple[Allocated, str]]:
        """The claim's devices of this node, each with its CDI device; the same when asked again. Refusal."""
        async with self._lock:
            return await self._prepare(namespace, name, uid)

    async def _prepare(self, namespace: str, name: str, uid: str) -> list[tuple[Allocated, str]]:
        if self._node.inventory is None:
            raise Refusal("mgpud-not-running", "mgpud has not answered yet", "kubelet tries again by itself")
        cards = {devices.name(card.uuid): card for card in self._node.inventory.cards}
        found = await self._get(namespace, name)
        try:
            claim, allocated = allocation.read(found, uid, self._node.name, cards)
        except allocation.MALFORMED as error:
            raise Refusal(
                "bad-claim",
                f"claim {namespace}/{name} cannot be read ({type(error).__name__}: {error})",
                "install an mgpu that knows this version of Kubernetes",
            ) from error
        await self._node.mgpud.claims(prepare=claim)
        ids = self._write(claim)
        return [(each, ids[each.request]) for each in allocated]

    async def unprepare(self, uid: str) -> None:
        """Forgets the claim, whether there is one or not; Refusal while a container has something by it."""
        async with self._lock:
            await self._node.mgpud.claims(unprepare=uid)
            self._files.remove(uid)

    async def _get(self, namespace: str, name: str) -> Json:
        try:
            return await self._api.get(RESOURCE_CLAIM, name, namespace)
        except ApiProblem as problem:
            why = "it is deleted" if problem.is_gone else str(problem)
            raise Refusal(
                "claim-not-read",
                f"claim {namespace}/{name}: {why}",
                "delete the pod" if problem.is_gone else "kubelet tries again by itself",
            ) from problem

    def _write(self, claim: Claim) -> dict[str, str]:
        try:
            return self._files.write(claim)
        except OSError as error:
            raise Refusal(
                "no-cdi-file",
                f"no CDI spec can be written for claim {claim} ({error.strerror})",
                "have the folder of CDI specs mounted writable, with room in it",
            ) from error

    async def keep(self) -> None:
        """For ever: whenever mgpud is back, it and the files are brought to say the same."""
        seen = 0
        while True:
            seen = await self._node.changed(seen)
            if not self._node.serving:
                continue
            try:
                async with self._lock:
                    await self._restore()
                self._node.conditions.clear("claims", "prepared claims are as kubelet has them")
            except Refusal as refusal:
                self._node.conditions.set("claims", f"claims: {refusal.message}; {refusal.hint}")

    async def _restore(self) -> None:
        known = {claim.uid: claim for claim in await self._node.mgpud.claims()}
        files = self._files.claims()
        for uid, (namespace, name) in files.items():
            if uid not in known:
                try:
                    await self._prepare(namespace, name, uid)
                except Refusal as refusal:
                    # No container will name a claim that is gone, or allocated elsewhere by now.
                    self._node.conditions.set(f"claim {uid}", f"{refusal.message}; {refusal.hint}")
        for uid, claim in known.items():
            if uid not in files:
                self._write(claim)

    async def follow_pods(self) -> None:
        """For ever: a pod that shares a claim which is prepared is made known to mgpud; kubelet does not
        say.
        """
        fields = {"spec.nodeName": self._node.name}
        tell = lambda line: self._node.conditions.set("pods", line)  # noqa: E731
        async for change in follow(self._api, POD, fields=fields, tell=tell):
            if isinstance(change, Deleted):
                continue
            pods = [change.value] if isinstance(change, Changed) else change.objects
            for pod in pods:
                if claims := claims_of(pod):
                    async with self._lock:
                        await self._admit_pod(pod, claims)

    async def _admit_pod(self, pod: Json, names: set[str]) -> None:
        meta = pod["metadata"]
        try:
            for claim in await self._node.mgpud.claims():
                if claim.namespace != meta["namespace"] or claim.name not in names:
                    continue
                if any(each.uid == meta["uid"] for each in claim.pods):
                    continue
                found = await self._get(claim.namespace, claim.name)
                if found["metadata"]["uid"] == claim.uid:
                    await self._node.mgpud.claims(
                        prepare=replace(claim, pods=allocation.reserved_for(found))
                    )
        except Refusal as refusal:
            self._node.conditions.set(
                f"pod {meta['uid']}", f"pod {meta['name']}: {refusal.message}; {refusal.hint}"
            )


def claims_of(pod: Json) -> set[str]:
    """The names of the claims that a pod uses, its own ones as its status tells."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    named = [each.get("resourceClaimName") for each in spec.get("resourceClaims") or []]
    made = [each.get("resourceClaimName") for each in status.get("resourceClaimStatuses") or []]
    return {name for name in (*named, *made) if name}
