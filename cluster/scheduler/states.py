"""Card states as numbers: mgpud's rules are asked once for a request and a state, and arrays do the rest.

Two cards of one size with equally much free, under one policy, are in one state, whatever runs there.
Thousands of cards are in a few hundred states, so that what a request makes of each state is a short table,
and what it makes of all cards is one look-up in it.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cluster.scheduler.occupancy import with_tenant
from oci_specs.request import Qos, Request
from placement import room
from placement.cards import CardState
from placement.rules import Rules

Bools = NDArray[np.bool_]
Ints = NDArray[np.int32]

# The state of a place where no card is.
NO_CARD = 0
_UNKNOWN = -1


class Example(NamedTuple):
    """One card in a state, with its node's rules: all others in that state fare as it does."""

    card: CardState
    rules: Rules


class Features(NamedTuple):
    """A state in numbers. free_core_*: percent that one more container of the class can have as its quota.
    lent_mib: the most that one can be granted whose memory gives way.
    """

    memory_mib: int
    free_mib: int
    lent_mib: int
    free_core_online: int
    free_core_offline: int
    tenants: int
    places: int


class States:
    """Every state that a card was seen in, by number, from 1 on.

    features[state]: as Features. cards[state]: how many cards are in it now.
    """

    def __init__(self) -> None:
        self._numbers: dict[tuple[Any, ...], int] = {}
        self._examples: list[Example | None] = [None]
        self._demands: dict[Request, Demand] = {}
        self.features: Ints = np.zeros((256, len(Features._fields)), dtype=np.int32)
        self.cards: Ints = np.zeros(256, dtype=np.int32)

    def __len__(self) -> int:
        return len(self._examples)

    @property
    def in_use(self) -> NDArray[np.intp]:
        return np.flatnonzero(self.cards)

    def of(self, card: CardState, rules: Rules) -> int:
        key = _key(card, rules)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._examples)
            self._examples.append(Example(card, rules))
            self.features = grown(self.features, number + 1)
            self.cards = grown(self.cards, number + 1)
            self.features[number] = _features(card, rules)
        return number

    def example(self, number: int) -> Example:
        found = self._examples[number]
        assert found is not None, "no GPU has no state"
        return found

    def demand(self, request: Request) -> "Demand":
        """States after the request; it asks for a number of cards and names none."""
        found = self._demands.get(request)
        if found is None:
            found = self._demands[request] = Demand(self, request)
        return found


class Demand:
    """One request against the states that cards are in."""

    def __init__(self, states: States, request: Request) -> None:
        assert request.count is not None
        self._states = states
        self._request = request
        self._count = request.count
        self._fits: NDArray[np.int8] = np.full(256, _UNKNOWN, dtype=np.int8)
        self._after: Ints = np.full(256, _UNKNOWN, dtype=np.int32)
        self._fits[NO_CARD] = False

    def fits(self, states: Ints) -> Bools:
        """For each place whether the card can be one of the request's; all of them are of cards in use."""
        self._fits = grown(self._fits, len(self._states), _UNKNOWN)
        in_use = self._states.in_use
        for number in in_use[self._fits[in_use] == _UNKNOWN].tolist():
            card, rules = self._states.example(number)
            self._fits[number] = room.examine(self._request, card, self._count, rules).lack is None
        found: Bools = self._fits[states] > 0
        return found

    def after(self, states: Ints) -> Ints:
        """For each of these states, where the request fits, the state that the card is in with it."""
        self._after = grown(self._after, len(self._states), _UNKNOWN)
        missing = np.unique(states[self._after[states] == _UNKNOWN])
        for number in missing.tolist():
            card, rules = self._states.example(number)
            then = with_tenant(card, self._request, self._count, rules, "")
            self._after[number] = self._states.of(then, rules)
        return self._after[states]


def grown(array: NDArray[Any], length: int, fill: int = 0) -> NDArray[Any]:
    """The array, with twice the length that is needed where it is too short."""
    if length <= len(array):
        return array
    longer = np.full((2 * length, *array.shape[1:]), fill, dtype=array.dtype)
    longer[: len(array)] = array
    return longer


def _features(card: CardState, rules: Rules) -> Features:
    policy = card.policy or rules.policy
    return Features(
        memory_mib=card.memory_mib,
        free_mib=max(0, card.free_mib),
        lent_mib=max(0, card.free_for("offline", reclaimable=True)),
        free_core_online=room.free_core(card, "online", policy),
        free_core_offline=room.free_core(card, "offline", policy),
        tenants=len(card.tenants),
        places=max(0, rules.max_containers_per_card - len(card.tenants)),
    )


def _key(card: CardState, rules: Rules) -> tuple[Any, ...]:
    return (
        rules.policy,
        rules.max_containers_per_card,
        card.memory_mib,
        card.policy,
        card.free_mib,
        card.free_for("offline", reclaimable=True),
        card.lends,
        *_class(card, "online"),
        *_class(card, "offline"),
    )


def _class(card: CardState, qos: Qos) -> tuple[int, int, int]:
    """Containers of the class, those without a quota, and the quotas' sum in percent."""
    cores = [tenant.core_percent for tenant in card.tenants if tenant.qos == qos]
    return len(cores), cores.count(None), sum(core or 0 for core in cores)
