"""mgpud, asked over its control socket."""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster.resources import inventory
from cluster.resources.inventory import Inventory
from oci_specs.claim import Claim
from oci_specs.refusal import Refusal
from runtime_hook import control

TIMEOUT_S = 5


@dataclass(frozen=True, kw_only=True)
class PodEvent:
    """Something that a pod's owner is to hear. number: rises, over mgpud's restarts too."""

    number: int
    time: str
    kind: str
    container_id: str
    pod: str
    namespace: str
    container: str
    text: str


class Mgpud:
    """Every method raises Refusal when mgpud is away, or says no."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket

    async def _ask(self, verb: str, **members: Any) -> dict[str, Any]:
        """In a thread: the client waits for a mgpud that is being started again."""
        return await asyncio.to_thread(
            control.call, str(self._socket), verb, timeout_seconds=TIMEOUT_S, **members
        )

    async def inventory(self) -> Inventory:
        return inventory.from_members(await self._ask("inventory"))

    async def events(self, since: int) -> tuple[int, list[PodEvent]]:
        """The events from number `since` on that mgpud still knows, and the number to go on with."""
        reply = await self._ask("watch", since=since)
        try:
            of_pods = (each for each in reply["events"] if each["pod"] and each["namespace"])
            return int(reply["next"]), [PodEvent(**each) for each in of_pods]
        except (KeyError, TypeError, ValueError) as error:
            raise control.bad_reply("events that cannot be read", str(self._socket)) from error

    async def claims(self, *, prepare: Claim | None = None, unprepare: str | None = None) -> list[Claim]:
        """All prepared claims, once the one is and the other, by its uid, is not any more."""
        members: dict[str, Any] = {} if prepare is None else {"prepare": prepare.to_json()}
        if unprepare is not None:
            members["unprepare"] = unprepare
        reply = await self._ask("claims", **members)
        try:
            return [Claim.from_json(each) for each in reply["claims"]]
        except (KeyError, TypeError) as error:
            raise control.bad_reply("claims that cannot be read", str(self._socket)) from error

    async def driver_version(self) -> str:
        """Of NVIDIA's driver."""
        return str((await self._ask("health")).get("driver_version", ""))


__all__ = ["Mgpud", "PodEvent", "Refusal"]
