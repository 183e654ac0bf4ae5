"""What mgpud serves: one object for all that decide about grants."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from native_sched.daemon.engine import Engine
from native_sched.daemon.grants.card_policies import CardPolicies
from native_sched.daemon.grants.grants import Grant, Grants
from native_sched.daemon.grants.scheduling import Scheduling
from native_sched.daemon.grants.store import GrantStore
from native_sched.daemon.node.config import NodeConfig
from native_sched.daemon.node.inventory import CardInfo
from native_sched.daemon.node.state import NodeState
from placement.cards import CardState, Tenant


@dataclass(frozen=True, kw_only=True)
class Served:
    """The node's cards and settings, its grants, and where they are written down and enforced.

    cards: by index, as the driver has them now (card_watch.py); the same list all the time.
    """

    cards: list[CardInfo]
    config: NodeConfig
    engine: Engine
    grants: Grants
    policies: CardPolicies
    scheduling: Scheduling
    store: GrantStore
    node: NodeState

    @property
    def lends_memory(self) -> bool:
        return self.config.offline_overcommit

    def _used_mib(self, grant: Grant, card: int, granted_mib: int) -> int:
        """What an online container uses of its memory on the card: the rest may be lent, unless the card is
        its alone.
        """
        if not grant.served or grant.whole_cards:
            return granted_mib
        usage = self.engine.usage(grant.tenant, card)
        return min(granted_mib, -(-int(usage.used_bytes + usage.reserved_bytes) >> 20))

    def card_states(self, grants: Iterable[Grant], without: Collection[int] = ()) -> list[CardState]:
        """The cards as placement sees them with these grants on them. without: indices of cards left out."""
        counted = list(grants)
        return [self._card_state(card, counted) for card in self.cards if card.index not in without]

    def _card_state(self, card: CardInfo, grants: Iterable[Grant]) -> CardState:
        owned = self.policies.of(card.index)
        shares = [(grant, own) for grant in grants for own in grant.cards if own.index == card.index]
        online_mib = None
        if self.lends_memory:
            online_mib = sum(
                self._used_mib(grant, card.index, own.memory_mib)
                for grant, own in shares
                if grant.qos == "online"
            )
        return CardState(
            index=card.index,
            minor=card.minor,
            uuid=card.uuid,
            name=card.name,
            memory_mib=card.memory_mib,
            policy=owned.policy if owned else None,
            policy_owner=owned.name if owned else None,
            online_mib=online_mib,
            tenants=tuple(
                Tenant(
                    container_id=grant.container_id,
                    qos=grant.qos,
                    memory_mib=own.memory_mib,
                    core_percent=own.core_percent,
                    reclaimable=grant.reclaimable,
                    whole=grant.whole_cards,
                )
                for grant, own in shares
            ),
        )
