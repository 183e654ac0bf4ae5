"""Tells the engine's scheduler what the grants say: each card's policy, each container's class and share."""

from collections.abc import Iterator
from typing import NamedTuple

from native_sched.daemon.engine import Engine
from native_sched.daemon.engine_abi import TenantClass
from native_sched.daemon.grants import quota
from native_sched.daemon.grants.card_policies import CardPolicies
from native_sched.daemon.grants.grants import Grant, Grants
from native_sched.daemon.grants.quota import Part
from oci_specs import vocabulary
from oci_specs.request import Qos
from placement.cards import CardShare

_CLASSES = {vocabulary.ONLINE: TenantClass.ONLINE, vocabulary.OFFLINE: TenantClass.OFFLINE}


class Told(NamedTuple):
    """Of one container; cards: their indices."""

    qos: Qos
    percent: int
    cards: tuple[int, ...]


def _heeded(grant: Grant, card: CardShare) -> int | None:
    return card.core_percent if grant.policy in vocabulary.HEEDS_QUOTAS else None


class Scheduling:
    """Remembers what the engine was told and tells it the difference."""

    def __init__(self, engine: Engine, grants: Grants, policies: CardPolicies) -> None:
        self._engine = engine
        self._grants = grants
        self._policies = policies
        self._policy_told: dict[int, str] = {}
        self._told: dict[int, Told] = {}

    def quota_percent(self, grant: Grant) -> int | None:
        """The container's share of each of its cards; None while it is not scheduled."""
        told = self._told.get(grant.tenant)
        return told.percent if told else None

    def apply(self) -> None:
        """Makes the engine's scheduler agree with the grants: to be called after each change of them.

        A container that comes or goes changes the part of every one without a quota in its class. OSError
        when the engine takes something not, after all else was told; calling again goes on from there.
        """
        failed: OSError | None = None
        # A container that is not served may be on a card that is there no more.
        for card in sorted({card.index for grant in self._grants if grant.served for card in grant.cards}):
            try:
                self.tell_policy(card)
            except OSError as error:
                failed = failed or error
        wanted = self._wanted()
        self._told = {tenant: told for tenant, told in self._told.items() if tenant in wanted}
        # Tenants that lose go first, so that no class comes to more than a card on the way.
        for tenant in sorted(wanted, key=lambda tenant: self._gain(tenant, wanted[tenant])):
            if self._told.get(tenant) != wanted[tenant]:
                try:
                    self._engine.schedule(tenant, _CLASSES[wanted[tenant].qos], wanted[tenant].percent)
                except OSError as error:
                    failed = failed or error
                else:
                    self._told[tenant] = wanted[tenant]
        if failed is not None:
            raise failed

    def tell_policy(self, card: int) -> None:
        """Makes the engine's policy of the card the one that it has by now, if it has one."""
        owned = self._policies.of(card)
        if owned is not None and self._policy_told.get(card) != owned.policy:
            self._engine.card_policy(card, owned.policy)
            self._policy_told[card] = owned.policy

    def _wanted(self) -> dict[int, Told]:
        percents = quota.percents(self._cards())
        return {
            grant.tenant: Told(grant.qos, percents[grant.tenant], tuple(card.index for card in grant.cards))
            for grant in self._grants
            if grant.tenant in percents and grant.served
        }

    def _cards(self) -> Iterator[list[Part]]:
        for index in sorted({card.index for grant in self._grants for card in grant.cards}):
            yield [
                Part(grant.tenant, grant.qos, _heeded(grant, card))
                for grant in self._grants
                for card in grant.cards
                if card.index == index
            ]

    def _gain(self, tenant: int, wanted: Told) -> int:
        """Percent more than now in the same class; a change of class or cards goes between losers and
        winners.
        """
        told = self._told.get(tenant)
        if told is None:
            return wanted.percent
        return wanted.percent - told.percent if wanted[::2] == told[::2] else 0
