"""The node process, as far as the driver in it needs it."""

from pathlib import Path
from typing import Protocol

from cluster.api.client import Api
from cluster.process.conditions import Conditions
from cluster.resources.inventory import Inventory
from oci_specs.claim import Claim


class Mgpud(Protocol):
    """Every method raises Refusal when mgpud is away, or says no."""

    async def claims(self, *, prepare: Claim | None = None, unprepare: str | None = None) -> list[Claim]:
        """All prepared claims, once the one is and the other, by its uid, is not any more."""
        ...

    async def driver_version(self) -> str:
        """Of NVIDIA's driver."""
        ...


class Node(Protocol):
    """inventory: None until mgpud has answered; serving: whether it would admit a container now. kubelet: its
    root directory.
    """

    @property
    def name(self) -> str: ...
    @property
    def kubelet(self) -> Path: ...
    @property
    def mgpud(self) -> Mgpud: ...
    @property
    def conditions(self) -> Conditions: ...
    @property
    def api(self) -> Api | None: ...
    @property
    def inventory(self) -> Inventory | None: ...
    @property
    def serving(self) -> bool: ...

    async def changed(self, seen: int = 0) -> int:
        """Waits until inventory or serving are newer than `seen`; returns what to wait on next."""
        ...
