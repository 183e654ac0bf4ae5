"""Cards and who is on them, as placement sees them."""

from __future__ import annotations

from dataclasses import dataclass

from oci_specs.request import Qos


@dataclass(frozen=True, kw_only=True)
class Tenant:
    """One container on one card. core_percent None: no quota, an equal part of what its class has left.

    reclaimable: its memory gives way to online containers. idle_mib: of its memory, what it does not use and
    may be lent to reclaimable ones.
    """

    container_id: str
    qos: Qos
    memory_mib: int
    core_percent: int | None = None
    reclaimable: bool = False
    idle_mib: int = 0


@dataclass(frozen=True, kw_only=True)
class CardState:
    """One card. policy is None until one is set.

    policy_owner is the container that set it; None: the operator did.
    """

    index: int
    minor: int
    uuid: str
    name: str
    memory_mib: int
    policy: str | None = None
    policy_owner: str | None = None
    tenants: tuple[Tenant, ...] = ()

    @property
    def free_mib(self) -> int:
        """What can be granted to online: memory that gives way is as good as free."""
        return self.memory_mib - sum(tenant.memory_mib for tenant in self.tenants if not tenant.reclaimable)

    def free_for(self, qos: Qos, *, reclaimable: bool) -> int:
        """The most that a further container can be granted, in MiB.

        A reclaimable one is also lent what online does not use now. Any other offline one has to fit beside
        reclaimable ones, since these give way to online alone.
        """
        if qos == "online":
            return self.free_mib
        beside = self.memory_mib - sum(tenant.memory_mib - tenant.idle_mib for tenant in self.tenants)
        return beside if reclaimable else min(beside, self.free_mib)

    def count(self, qos: Qos) -> int:
        return sum(tenant.qos == qos for tenant in self.tenants)


@dataclass(frozen=True, kw_only=True)
class CardShare:
    """The container's part of one card. core_percent None: as in Tenant."""

    index: int
    minor: int
    uuid: str
    name: str
    memory_mib: int
    core_percent: int | None


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Cards by ascending index, all under one policy."""

    cards: tuple[CardShare, ...]
    policy: str
