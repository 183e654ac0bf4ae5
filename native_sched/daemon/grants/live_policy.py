"""The operator's word on which policy a card runs, for the containers on it and those to come."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from native_sched.daemon.grants.grants import Grant
from native_sched.daemon.grants.served import Served
from native_sched.daemon.log import LOG, Log
from oci_specs.refusal import Refusal
from oci_specs.vocabulary import QUOTAS_BIND
from placement.cards import CardState
from placement.room import LEAST_PART_PERCENT

# The owner of a policy that no container set.
NODE, OPERATOR = "node", "operator"


class LivePolicy:
    """Shows and sets the policies of cards."""

    def __init__(self, served: Served, log: Log = LOG) -> None:
        self._served = served
        self._log = log

    def answer(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """The reply to a `policy` message; a policy in it is set first, on all named cards or on none."""
        states = {state.index: state for state in self._served.card_states(self._served.grants)}
        chosen = sorted(set(message.get("cards") or states))
        for card in chosen:
            if card not in states:
                there = ", ".join(map(str, states)) or "none"
                raise Refusal("unknown-card", f"this node has no GPU {card}", f"its GPUs are: {there}")
        policy = message.get("policy")
        if policy is not None:
            self._check(policy, [states[card] for card in chosen])
            self._set(chosen, policy)
        return {"cards": [self._row(card) for card in chosen]}

    def _set(self, cards: Sequence[int], policy: str) -> None:
        changed = [
            replace(grant, policy=policy) for grant in self._served.grants if any(map(grant.has_card, cards))
        ]
        word = {**self._served.policies.operators, **dict.fromkeys(cards, policy)}
        try:
            node = self._served.node.prepare(policies=word)
        except OSError as error:
            raise _not_recorded(error) from error
        try:
            grants = self._served.store.prepare(changed)
        except BaseException:
            node.abandon()
            raise
        roll_back = self._served.policies.set(cards, policy)
        try:
            self._tell(cards)
            grants.commit()
            node.commit()
        except OSError as error:
            roll_back()
            grants.abandon()
            node.abandon()
            with suppress(OSError):
                self._tell(cards)
            raise Refusal(
                "not-taken",
                f"the scheduler does not take {policy} for these GPUs now ({error.strerror})",
                "wait until their containers end; everything is as before",
            ) from error
        for grant in changed:
            self._log.info("policy-changed", container=grant.container_id, policy=policy)

    def _tell(self, cards: Sequence[int]) -> None:
        for card in cards:
            self._served.scheduling.tell_policy(card)
        self._served.scheduling.apply()

    def _check(self, policy: str, cards: Sequence[CardState]) -> None:
        chosen = {card.index for card in cards}
        for grant in self._served.grants:
            own = {card.index for card in grant.cards}
            if own & chosen and own - chosen:
                raise _split(grant, own | chosen)
        if policy in QUOTAS_BIND:
            names = {grant.container_id: grant.name for grant in self._served.grants}
            for card in cards:
                _check_parts(policy, card, names)

    def _row(self, card: int) -> dict[str, Any]:
        owned = self._served.policies.of(card)
        return {
            "index": card,
            "policy": owned.policy if owned else self._served.config.policy,
            "owner": NODE if owned is None else OPERATOR if owned.owner is None else owned.owner,
            "tenants": [grant.container_id for grant in self._served.grants if grant.has_card(card)],
        }


def _not_recorded(error: OSError) -> Refusal:
    return Refusal(
        "not-recorded",
        f"mgpud cannot write down the policies of GPUs ({error.strerror})",
        "make room in its folder, or mount it writable, then try again",
    )


def _split(grant: Grant, together: set[int]) -> Refusal:
    options = " ".join(f"--gpu {card}" for card in sorted(together))
    own = " and ".join(str(card.index) for card in grant.cards)
    return Refusal(
        "cards-coupled",
        f"container {grant.name} runs on GPUs {own} as one, under one policy",
        f"set all of them: {options}",
    )


def _check_parts(policy: str, card: CardState, names: Mapping[str, str]) -> None:
    """Whether each container without a quota has a part of the card left."""
    for qos in ("online", "offline"):
        tenants = [tenant for tenant in card.tenants if tenant.qos == qos]
        without = [tenant for tenant in tenants if tenant.core_percent is None]
        left = 100 - sum(tenant.core_percent or 0 for tenant in tenants)
        if left < LEAST_PART_PERCENT * len(without):
            raise Refusal(
                "core-full",
                f"under {policy} {qos} container {names[without[-1].container_id]} would get less than "
                f"{LEAST_PART_PERCENT} percent of GPU {card.index}, of which quotas leave {left} percent",
                "lower another's with mgpu set --core, or give this one a quota first",
            )
