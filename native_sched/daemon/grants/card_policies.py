"""Which policy each card runs, and whose word that is."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from native_sched.daemon.grants.grants import Grant


class CardPolicy(NamedTuple):
    """owner is the container that set it, name what people call that; None: the operator did."""

    policy: str
    owner: str | None
    name: str | None = None


class CardPolicies:
    """The operator's policy, else that of the first container on the card; operators: those set so far."""

    def __init__(self, grants: Iterable[Grant], operators: Mapping[int, str] | None = None) -> None:
        self._grants = grants
        self._operators: dict[int, str] = dict(operators or {})

    @property
    def operators(self) -> dict[int, str]:
        return self._operators

    def of(self, card: int) -> CardPolicy | None:
        """None while the card is free and no policy is set."""
        if card in self._operators:
            return CardPolicy(self._operators[card], None)
        for grant in self._grants:
            if grant.policy is not None and grant.has_card(card):
                return CardPolicy(grant.policy, grant.container_id, grant.name)
        return None

    def set(self, cards: Sequence[int], policy: str) -> Callable[[], None]:
        """The operator's word, for the containers that are on the cards and for those that will be.

        Returns what takes it back.
        """
        words = dict(self._operators)
        changed = [grant for grant in self._grants if any(map(grant.has_card, cards))]
        before = [grant.policy for grant in changed]

        def roll_back() -> None:
            self._operators = words
            for grant, old in zip(changed, before, strict=True):
                grant.policy = old

        self._operators = {**words, **dict.fromkeys(cards, policy)}
        for grant in changed:
            grant.policy = policy
        return roll_back
