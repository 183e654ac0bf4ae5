"""Cards and who is on them, as placement sees them."""

from dataclasses import dataclass

from oci_specs.request import Qos


@dataclass(frozen=True, kw_only=True)
class Tenant:
    """One container on one card. core_percent None: no quota, an equal part of what its class has left.

    reclaimable: its memory gives way to online containers. whole: no other container may be on the card.
    """

    container_id: str
    qos: Qos
    memory_mib: int
    core_percent: int | None = None
    reclaimable: bool = False
    whole: bool = False


@dataclass(frozen=True, kw_only=True)
class CardState:
    """One card. policy is None until one is set.

    policy_owner is the container that set it; None: the operator did. online_mib: memory that online
    containers use, where the rest is lent to reclaimable ones; None where nothing is lent. fixed: nothing can
    be moved off it, and others of the node lend.
    """

    index: int
    minor: int
    uuid: str
    name: str
    memory_mib: int
    policy: str | None = None
    policy_owner: str | None = None
    tenants: tuple[Tenant, ...] = ()
    online_mib: int | None = None
    fixed: bool = False

    @property
    def lends(self) -> bool:
        return self.online_mib is not None

    @property
    def free_mib(self) -> int:
        """Memory that can be granted to online: reclaimable memory is as good as free."""
        return self.memory_mib - sum(tenant.memory_mib for tenant in self.tenants if not tenant.reclaimable)

    def free_for(self, qos: Qos, *, reclaimable: bool) -> int:
        """The most that a further container can be granted, in MiB.

        A reclaimable one is also lent what online does not use now. Any other offline one has to fit beside
        reclaimable ones, since these give way to online alone.
        """
        if qos == "online":
            return self.free_mib
        if reclaimable and self.fixed:
            return 0
        if self.online_mib is None or any(tenant.whole for tenant in self.tenants):
            beside = self.memory_mib - sum(tenant.memory_mib for tenant in self.tenants)
        else:
            offline = sum(tenant.memory_mib for tenant in self.tenants if tenant.qos == "offline")
            beside = self.memory_mib - self.online_mib - offline
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
