"""The typical pods as arrays: how many of each a card, and a node, would hold."""

from collections.abc import Mapping, Sequence

import numpy as np

from cluster.scheduler.mix import Kind
from cluster.scheduler.states import Features, Ints
from cluster.scheduler.table import Doubles, Floats
from oci_specs.request import Request
from oci_specs.units import MIB_PER_GIB
from oci_specs.vocabulary import OFFLINE
from placement import room
from placement.cards import CardState
from placement.rules import Rules

_FIELD = {name: place for place, name in enumerate(Features._fields)}
_ANY_RULES = Rules()
TINY = 1e-9
# A place that lacks an eighth of what a pod needs is worth a third of a whole one; that lacks half, nothing.
_NEARLY = 8


class Kinds:
    """Kinds of pods by their typical requests.

    requests: those that occur, of one container. A kind is one of them with its pod's CPU: request[kind],
    cpu[kind] in thousandths, gpus[kind], cards of the mean size that it comes to, ascending. An item is a
    kind with the models that it may use: item_kind[item], allowed[item], share[item] of all that comes;
    share_of_kind[kind] is their sum, and gpus_asked[kind] what that is in GPUs. turnover: as in mix.py.
    whole[kind of whole_nodes]: its number; these are counted though none of them may have come.
    """

    turnover = 0.0

    def __init__(
        self,
        found: Sequence[tuple[Kind, float]],
        mean_card_mib: float,
        whole_nodes: Sequence[Kind] = (),
    ) -> None:
        self._items = [kind for kind, _ in found]
        self._whole_nodes = list(whole_nodes)
        counted = [*self._items, *whole_nodes]
        self.requests = list(dict.fromkeys(kind.request for kind in counted))
        numbers = {request: number for number, request in enumerate(self.requests)}
        gpus = np.array([gpus_of(request, mean_card_mib) for request in self.requests])
        kinds = sorted(
            {(numbers[kind.request], kind.cpu_milli) for kind in counted},
            key=lambda kind: (gpus[kind[0]], kind),
        )
        places = {kind: number for number, kind in enumerate(kinds)}
        self.request = np.array([request for request, _ in kinds], dtype=np.intp)
        self.cpu: Floats = np.array([max(1, cpu) for _, cpu in kinds], dtype=np.float32)
        self.gpus = gpus[self.request]
        self._last_as_large = np.searchsorted(self.gpus, self.gpus, side="right") - 1
        of_each = np.array(
            [places[numbers[kind.request], kind.cpu_milli] for kind in counted], dtype=np.intp
        )
        self.item_kind, self.whole = of_each[: len(found)], of_each[len(found) :]
        self.allowed = [kind.models for kind in self._items]
        self._share(dict(found))
        self._count: Floats = np.array([request.count for request in self.requests], dtype=np.float32)
        self._offline = np.array([request.qos == OFFLINE for request in self.requests])
        self._reclaimable = np.array([request.reclaimable for request in self.requests])
        self._whole = np.array([request.whole_cards for request in self.requests])
        self._shares: dict[int, tuple[Ints, Ints]] = {}

    def takes(self, found: Sequence[tuple[Kind, float]], whole_nodes: Sequence[Kind]) -> bool:
        """Take over these shares, if they are of the same kinds; False where they are not."""
        shares = dict(found)
        if shares.keys() != set(self._items) or whole_nodes != self._whole_nodes:
            return False
        self._share(shares)
        return True

    def _share(self, shares: Mapping[Kind, float]) -> None:
        self.share = np.array([shares[kind] for kind in self._items])
        self.share_of_kind = np.bincount(self.item_kind, weights=self.share, minlength=len(self.request))
        self.gpus_asked = self.share_of_kind * self.gpus

    def times(self, features: Ints) -> Floats:
        """How many containers of each request cards with these features would hold, [card, request].

        By memory, core and places alone: a policy comes and goes with the containers that are there.
        """
        found = np.zeros((len(features), len(self.requests)), dtype=np.float32)
        for size in np.unique(features[:, _FIELD["memory_mib"]]).tolist():
            of_size = features[:, _FIELD["memory_mib"]] == size
            if size:
                found[of_size] = self._times(features[of_size], size)
        return found

    def _times(self, features: Ints, card_mib: int) -> Floats:
        if card_mib not in self._shares:
            self._shares[card_mib] = self._shares_of(card_mib)
        memory, core = self._shares[card_mib]
        columns = {name: features[:, place, None] for name, place in _FIELD.items()}
        free = np.where(self._offline, columns["free_core_offline"], columns["free_core_online"])
        mib = np.where(self._reclaimable, columns["lent_mib"], columns["free_mib"])
        times = np.minimum(np.minimum(mib // memory, free // core), columns["places"])
        times = np.where(self._whole & (columns["tenants"] > 0), 0, times)
        return times.astype(np.float32)

    def _shares_of(self, card_mib: int) -> tuple[Ints, Ints]:
        """MiB and percent that each request takes of a card of this size; more than it has where it never
        fits.
        """
        card = CardState(index=0, minor=0, uuid="", name="", memory_mib=card_mib)
        memory, core = [], []
        for request in self.requests:
            verdict = room.examine(request, card, request.count or 1, _ANY_RULES)
            fits = verdict.lack is None and verdict.share.memory_mib > 0
            memory.append(verdict.share.memory_mib if fits else 2 * card_mib)
            # fixed-share leaves at least as much; where no quotas hold this is a little too careful.
            core.append(verdict.share.core_percent or room.LEAST_PART_PERCENT)
        return np.array(memory, dtype=np.int32), np.array(core, dtype=np.int32)

    def pods(self, times: Floats, cpu: Floats) -> Floats:
        """How many pods of each kind nodes would hold, [node, kind]: by cards, which are counted, and by CPU,
        in fractions from one pod on. Where pods end, what is free of the place of a first one counts too.
        times: [node, request], its cards' sums; cpu: [node], free thousandths.
        """
        by_cards = (times / self._count)[:, self.request]
        by_cpu = cpu[:, None] / self.cpu
        found: Floats = np.minimum(np.floor(by_cards), by_cpu)
        short = (by_cards < 1) | (by_cpu < 1)
        found[short] = 0
        if self.turnover:
            free = np.maximum(np.minimum(by_cards[short], by_cpu[short]), 0)
            found[short] = np.float32(self.turnover) * free**_NEARLY
        return found

    def part_not_larger(self, pods: Floats) -> Doubles:
        """Of the GPUs asked for by all kinds that have room on a node, the part by those that ask for no more
        than each, [node, kind].
        """
        asked = np.cumsum((pods > 0) * self.gpus_asked, axis=1)
        found: Doubles = asked[:, self._last_as_large] / np.maximum(asked[:, -1:], TINY)
        return found


def gpus_of(request: Request, mean_card_mib: float) -> float:
    """Cards that the request comes to, on cards of the mean size."""
    count = request.count or 1
    if request.whole_cards:
        return float(count)
    parts = [(request.core_percent or 0) / 100]
    if request.memory is not None and request.memory.percent is not None:
        parts.append(request.memory.percent * count / 100)
    elif request.memory is not None:
        mib = request.memory.mib or (request.memory.units or 0) * MIB_PER_GIB
        parts.append(mib / mean_card_mib)
    return min(float(count), max(parts))


def allowed_models(allowed: Sequence[frozenset[str] | None], models: Sequence[str]) -> Doubles:
    """1 where an item may use a model, else 0: [item, model]."""
    return np.array(
        [[float(names is None or model in names) for model in models] for names in allowed],
        dtype=np.float64,
    ).reshape(len(allowed), len(models))
