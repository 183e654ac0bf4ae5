"""One extender places at a time: two, each with a view of its own, would give one card to two pods.

The lease is taken when the stock scheduler beside this extender asks for something, and kept while it asks:
whichever scheduler leads has its extender's lease follow it. Times are of a steady clock of this process:
what another's clock says is never compared (as client-go's leader election).
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

from cluster.api.client import Api, Object
from cluster.api.errors import ApiProblem
from cluster.api.kinds import LEASE
from oci_specs.refusal import Refusal, quoted

NAME = "mgpu-scheduler"
DURATION_SECONDS = 30.0
RENEW_SECONDS = 5.0
# Calls under it end before another can take it: a binding's call, and a renewal that is late.
USABLE_SECONDS = 15.0


class Lease:
    """taken: awaited after each time that it is taken anew, before it counts."""

    def __init__(
        self,
        api: Api,
        namespace: str,
        holder: str,
        clock: Callable[[], float],
        taken: Callable[[], Awaitable[None]],
    ) -> None:
        self._api = api
        self._namespace = namespace
        self._holder = holder
        self._clock = clock
        self._taken = taken
        self._renewed_s: float | None = None
        self._asked_s = float("-inf")
        # The lease as another wrote it, and when that was first seen.
        self._others: tuple[str, float] = ("", float("-inf"))
        self._lock = asyncio.Lock()

    @property
    def is_held(self) -> bool:
        return self._renewed_s is not None and self._clock() - self._renewed_s < USABLE_SECONDS

    async def hold(self) -> None:
        """Returns while it is held; Refusal while another holds it, ApiProblem where that cannot be told."""
        self._asked_s = self._clock()
        if self.is_held:
            return
        async with self._lock:
            if not self.is_held:
                await self._take()

    async def run(self) -> None:
        """For ever: renews it while it is asked for, and gives it back at the end."""
        try:
            while True:
                await asyncio.sleep(RENEW_SECONDS)
                if self._renewed_s is None or self._clock() - self._asked_s > DURATION_SECONDS:
                    continue
                try:
                    async with self._lock:
                        await self._take()
                except (ApiProblem, Refusal):
                    pass  # hold() says so when somebody asks
        finally:
            await self._give_back()

    async def _take(self) -> None:
        begun_s = self._clock()
        try:
            found: Object | None = await self._api.get(LEASE, NAME, self._namespace)
        except ApiProblem as problem:
            if not problem.is_gone:
                raise
            found = None
        holder = str((found or {}).get("spec", {}).get("holderIdentity") or "")
        if found is not None and holder not in ("", self._holder):
            self._check_expired(found, holder)
        try:
            value = self._value(found)
            await (self._api.create(LEASE, value) if found is None else self._api.replace(LEASE, value))
        except ApiProblem as problem:
            if problem.is_conflict:
                raise _held(quoted("another extender")) from problem
            raise
        if holder != self._holder or self._renewed_s is None:
            # Its last holder may have bound pods that no watch has shown here yet.
            await self._taken()
        self._renewed_s = begun_s

    def _check_expired(self, found: Object, holder: str) -> None:
        self._renewed_s = None
        version = str(found["metadata"].get("resourceVersion"))
        if version != self._others[0]:
            self._others = (version, self._clock())
        if self._clock() - self._others[1] < DURATION_SECONDS:
            raise _held(quoted(holder))

    def _value(self, found: Object | None) -> Object:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        meta = {"name": NAME, "namespace": self._namespace}
        if found is not None:
            meta["resourceVersion"] = found["metadata"]["resourceVersion"]
        return {
            "apiVersion": LEASE.api_version,
            "kind": LEASE.name,
            "metadata": meta,
            "spec": {
                "holderIdentity": self._holder,
                "leaseDurationSeconds": int(DURATION_SECONDS),
                "renewTime": now,
            },
        }

    async def _give_back(self) -> None:
        if not self.is_held:
            return
        try:
            found = await self._api.get(LEASE, NAME, self._namespace)
            if found.get("spec", {}).get("holderIdentity") == self._holder:
                found["spec"]["holderIdentity"] = ""
                await self._api.replace(LEASE, found)
        except ApiProblem:
            pass  # it ends by itself


def _held(who: str) -> Refusal:
    return Refusal("lease-held", f"{who} places pods now", "wait until it has not for 30 s")
