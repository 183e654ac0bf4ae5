"""A node's cards and rules as mgpud tells them, and as they stand in the node's annotation."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, TypeVar

from oci_specs.refusal import Refusal, quoted

ANNOTATION = "mgpu.dev/inventory"
VERSION = 1
CARDS_MAX = 4096

Chosen = Mapping[str, Mapping[str, tuple[str, ...]]]
_Read = TypeVar("_Read", "Rules", "Lending", "Card")


@dataclass(frozen=True, kw_only=True)
class Rules:
    """The part of node.toml that decides about a request; meanings in native_sched.daemon.node.config.

    aliyun_unit: what one of aliyun.com/gpu-mem is, "gib" or "mib".
    """

    policy: str
    placement: str
    max_containers_per_card: int
    aliyun_unit: str = "gib"


@dataclass(frozen=True, kw_only=True)
class Lending:
    """A card's memory by who has it, in MiB, where what online does not use is lent.

    online: used by online containers, of what they were granted. kept: granted to offline containers whose
    memory does not give way. lent: granted to those whose memory does.
    """

    online_mib: int
    kept_mib: int
    lent_mib: int


@dataclass(frozen=True, kw_only=True)
class Card:
    """One GPU, or one MIG instance.

    memory_mib: all of it. architecture: NVIDIA's family name in lower case, "" where it is not known. policy:
    what the operator set for this card, None where its first container sets it. healthy: False once it has
    fallen off the bus. drained: True while the operator lets it take no new container. lending: None where
    nothing is lent.
    """

    index: int
    uuid: str
    minor: int
    model: str
    memory_mib: int
    architecture: str = ""
    mig: bool = False
    policy: str | None = None
    healthy: bool = True
    drained: bool = False
    lending: Lending | None = None

    @property
    def reclaimable_mib(self) -> int:
        """Memory for containers whose memory gives way. What they were granted stays theirs when online takes
        more: it is kept in host memory meanwhile.
        """
        if self.lending is None:
            return 0
        rest = self.memory_mib - self.lending.online_mib - self.lending.kept_mib
        return max(self.lending.lent_mib, rest)


@dataclass(frozen=True, kw_only=True)
class Inventory:
    """cards: by ascending index. chosen: UUIDs of the cards that mgpud chose, by NAMESPACE/POD and container,
    for pods that were placed by no scheduler of mgpu's.

    missing: why no container with a GPU would start there now; no annotation has it.
    """

    rules: Rules
    cards: tuple[Card, ...]
    chosen: Chosen = field(default_factory=dict)
    missing: tuple[str, ...] = ()

    @property
    def healthy(self) -> tuple[Card, ...]:
        """Those that take containers."""
        return tuple(card for card in self.cards if card.healthy and not card.drained)

    def without_lending(self) -> Inventory:
        """The inventory as far as it does not move with use."""
        return replace(self, cards=tuple(replace(card, lending=None) for card in self.cards))

    def to_json(self) -> str:
        """The annotation's text; the same inventory always gives the same text."""
        document: dict[str, Any] = {
            "version": VERSION,
            "rules": asdict(self.rules),
            "cards": [asdict(card) for card in self.cards],
        }
        if self.chosen:
            document["chosen"] = self.chosen
        return json.dumps(document, separators=(",", ":"), sort_keys=True)


def read(text: str) -> Inventory:
    """The inventory that an annotation holds; Refusal for what is none: other controllers write to nodes
    too.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _malformed("it is not JSON") from error
    if not isinstance(document, dict) or document.get("version") != VERSION:
        version = document.get("version") if isinstance(document, dict) else document
        raise _malformed(f"its version is {quoted(version)}, not {VERSION}")
    return from_members(document)


def from_members(document: Mapping[str, Any]) -> Inventory:
    """From the members `rules` and `cards` of the annotation, or of mgpud's reply to `inventory`. Members
    that are not known here are passed over, so that a newer node can be read.
    """
    rows = document.get("cards")
    if not isinstance(rows, list) or len(rows) > CARDS_MAX:
        raise _malformed("it has no list of GPUs")
    cards = sorted((_read(Card, row) for row in rows), key=lambda card: card.index)
    if len({card.index for card in cards}) < len(cards) or len({card.uuid for card in cards}) < len(cards):
        raise _malformed("two of its GPUs have one index or one UUID")
    if any(card.memory_mib < 1 for card in cards):
        raise _malformed("a GPU of it has no memory")
    for card in cards:
        lending = card.lending
        if lending and min(lending.online_mib, lending.kept_mib, lending.lent_mib) < 0:
            raise _malformed("a GPU of it lends less than nothing")
    rules = _read(Rules, document.get("rules"))
    if rules.max_containers_per_card < 1:
        raise _malformed("its rules allow no container")
    return Inventory(
        rules=rules,
        cards=tuple(cards),
        chosen=_chosen(document.get("chosen", {})),
        missing=_missing(document.get("missing", [])),
    )


def _missing(found: object) -> tuple[str, ...]:
    """What stops all containers, in mgpud's words."""
    rows: list[Any] = found if isinstance(found, list) else [found]
    if not all(isinstance(row, dict) and isinstance(row.get("what"), str) for row in rows):
        raise _malformed("what it misses has no words")
    return tuple(row["what"] for row in rows if row.get("stops") == "all")


def _chosen(found: object) -> Chosen:
    pods = list(found.values()) if isinstance(found, dict) else [None]
    if not all(isinstance(pod, dict) and all(map(_is_uuids, pod.values())) for pod in pods):
        raise _malformed("what mgpud chose for pods is not told by pod and container")
    assert isinstance(found, dict)
    return {
        pod: {container: tuple(uuids) for container, uuids in containers.items()}
        for pod, containers in found.items()
    }


def _is_uuids(found: object) -> bool:
    return isinstance(found, list) and all(isinstance(each, str) for each in found)


_TYPES: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "str": (str,),
    "bool": (bool,),
    "str | None": (str, type(None)),
    "Lending | None": (dict, type(None)),
}


def _read(kind: type[_Read], row: object) -> _Read:
    if not isinstance(row, dict):
        raise _malformed(f"a part of it is no {_word(kind)}")
    known = {each.name: _TYPES[str(each.type)] for each in fields(kind)}
    for name, types in known.items():
        if name in row and type(row[name]) not in types:
            raise _malformed(f"{name} is {quoted(row[name])}")
    members = {name: row[name] for name in known if name in row}
    if members.get("lending") is not None:
        members["lending"] = _read(Lending, members["lending"])
    try:
        return kind(**members)
    except TypeError as error:
        raise _malformed(f"a {_word(kind)} of it is not whole") from error


def _word(kind: type) -> str:
    return "GPU" if kind is Card else kind.__name__.lower()


def _malformed(what: str) -> Refusal:
    return Refusal(
        "bad-inventory",
        f"{ANNOTATION} cannot be read: {what}",
        "install one version of mgpu on the nodes and in the cluster; the node's agent writes it anew",
    )
