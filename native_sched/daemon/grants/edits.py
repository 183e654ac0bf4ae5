"""Which files of the driver a card brings into a container: what its CDI spec says."""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from native_sched.daemon.grants import driver_files
from native_sched.daemon.log import LOG
from native_sched.daemon.node import capabilities
from native_sched.daemon.node.inventory import CardInfo
from oci_specs.cdi import Registry
from oci_specs.refusal import Refusal
from placement.cards import CardShare

# UUIDs of MIG instances: several have the node of one card.
_INSTANCE = "MIG-"


def _name(registry: Registry, kind: str, card: CardShare) -> str:
    """The card's device name in the specs: nvidia-ctk names by UUID, by index or both, as its operator chose,
    and its node tells which card is meant.
    """
    names = [card.uuid] if card.uuid in registry.names(kind) else []
    if not card.uuid.startswith(_INSTANCE):
        names += registry.names_with_node(kind, f"/dev/nvidia{card.minor}")
    if names:
        return names[0]
    raise Refusal(
        "no-cdi-device",
        f"no CDI spec names GPU {card.index} ({card.uuid}) as {kind}",
        "write one with nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"
        if kind.startswith("nvidia.")
        else "mgpud writes it anew: try again in some seconds",
    )


def edits_from_cdi(
    kind: str,
    directories: Sequence[str],
    known: Collection[CardInfo] = (),
    minors_path: str = capabilities.MINORS,
    proc: str = driver_files.PROC,
) -> Callable[[Iterable[CardShare]], dict[str, Any]]:
    """A function from cards to the `edits` of a grant. Specs are read anew each time: they follow the driver.

    known: the node's cards, a list that changes; MIG instances are recognised by it. Capabilities of others
    are refused, whoever's they are. What a container does not get is logged once, until it is something else.
    """
    said: list[str] = []

    def edits(cards: Iterable[CardShare]) -> dict[str, Any]:
        cards = list(cards)
        instances = {card.uuid: (card.minor, card.instance) for card in known if card.instance}
        registry = Registry.load(directories)
        found = registry.edits(kind, [_name(registry, kind, card) for card in cards]).to_json()
        own = {card.uuid: instances[card.uuid] for card in cards if card.uuid in instances}
        caps = capabilities.check(found, own, capabilities.minors(minors_path))
        minors = {card.minor for card in cards}
        given, left_out = driver_files.keep_own(found, driver_files.own_nodes(minors, caps))
        if left_out and left_out != said:
            said[:] = left_out
            LOG.info("cdi-left-out", what=" ".join(left_out))
        gpu_instances = {(minor, instance[0]) for minor, instance in own.values()}
        if covered := driver_files.masked(minors, gpu_instances, proc):
            given["masked_paths"] = covered
        return given

    return edits
