"""Which cards a pod's annotations leave, and which card and node is best for it: by HAMi's names."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from placement.cards import CardState

USE_MODELS = "nvidia.com/use-gputype"
NO_MODELS = "nvidia.com/nouse-gputype"
USE_UUIDS = "nvidia.com/use-gpuuuid"
NO_UUIDS = "nvidia.com/nouse-gpuuuid"
NODES = "hami.io/node-scheduler-policy"
CARDS = "hami.io/gpu-scheduler-policy"
NAMES = (USE_MODELS, NO_MODELS, USE_UUIDS, NO_UUIDS, NODES, CARDS)
# Of CARDS: cards without another container.
IDLE = "mutex"

Policy = Literal["binpack", "spread"]
POLICIES: tuple[Policy, ...] = ("binpack", "spread")


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """models, no_models: parts of models' names, in capitals. nodes, cards: None where the pod leaves that
    to the cluster.
    """

    models: tuple[str, ...] = ()
    no_models: tuple[str, ...] = ()
    uuids: tuple[str, ...] = ()
    no_uuids: tuple[str, ...] = ()
    idle: bool = False
    nodes: Policy | None = None
    cards: Policy | None = None

    @property
    def chooses(self) -> bool:
        return bool(self.chooses_models or self.uuids or self.no_uuids or self.idle)

    @property
    def chooses_models(self) -> bool:
        return bool(self.models or self.no_models)

    def of(self, cards: Sequence[CardState]) -> Sequence[CardState]:
        """Those that are left."""
        return [card for card in cards if self._takes(card)] if self.chooses else cards

    def takes_model(self, name: str) -> bool:
        wrong = bool(self.models) and not _names(self.models, name)
        return not wrong and not _names(self.no_models, name)

    def _takes(self, card: CardState) -> bool:
        return (
            self.takes_model(card.name)
            and (not self.uuids or card.uuid in self.uuids)
            and card.uuid not in self.no_uuids
            and not (self.idle and card.tenants)
        )


ANY = Wanted()
# What a pod's user writes is read for each card of each node, so a longer list leaves no card.
WORDS_MAX, CHARS_MAX = 64, 4096
_NONE = Wanted(uuids=("",))


def read(annotations: Mapping[str, str]) -> Wanted:
    """An empty value says nothing."""
    if too_long(annotations):
        return _NONE
    models, no_models, uuids, no_uuids, nodes, cards = (words(annotations.get(name, "")) for name in NAMES)
    if not (models or no_models or uuids or no_uuids or nodes or cards):
        return ANY
    return Wanted(
        models=tuple(each.upper() for each in models),
        no_models=tuple(each.upper() for each in no_models),
        uuids=uuids,
        no_uuids=no_uuids,
        idle=IDLE in cards,
        nodes=next((each for each in POLICIES if each in nodes), None),
        cards=next((each for each in POLICIES if each in cards), None),
    )


def too_long(annotations: Mapping[str, str]) -> list[str]:
    """The names of those that say more than is read."""
    said = {name: annotations.get(name, "") for name in NAMES}
    return [name for name, text in said.items() if len(text) > CHARS_MAX or text.count(",") >= WORDS_MAX]


def words(text: str) -> tuple[str, ...]:
    return tuple(each.strip() for each in text.split(",") if each.strip())


@lru_cache(maxsize=256)
def _names(parts: tuple[str, ...], model: str) -> bool:
    # HAMi's names of models begin with the vendor's.
    name = f"NVIDIA-{model}".upper()
    return any(part in name for part in parts)
