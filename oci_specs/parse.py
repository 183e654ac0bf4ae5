"""From what a container carries to its Request, or to nothing, or to a refusal.

Sources by distance: annotations (container and pod ones arrive in the same map), then the environment, then
the node's config. For each meaning (class, policy, memory, core, cards) the nearest source that names it wins
and farther ones are not read: an image's environment must not stop the pod that overrides it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Protocol, cast

from oci_specs import forms, identity, units, vocabulary
from oci_specs.refusal import Refusal, quoted
from oci_specs.request import Memory, Qos, Request
from oci_specs.vocabulary import Key

MIN_MIB_PER_CARD_OF_SEVERAL = 1024


class ParseConfig(Protocol):
    """What parsing needs of the node's config (native_sched.daemon.node.config.NodeConfig)."""

    @property
    def aliyun_unit(self) -> str: ...
    @property
    def visible_devices_all(self) -> str: ...


@dataclass(frozen=True)
class _Stated:
    """What one key stated: the text as written and its meaning."""

    key: Key
    text: str
    value: Any

    def __str__(self) -> str:
        return f"{self.key.name} {quoted(self.text)}"


def request(
    annotations: Mapping[str, str],
    env: Mapping[str, str],
    config: ParseConfig,
    *,
    container_id: str = "",
) -> Request | None:
    """The container's request; None when nothing asks for a GPU; Refusal naming key, value and what is
    allowed.

    A class or a policy alone asks for nothing. NVIDIA_VISIBLE_DEVICES narrows the choice of cards; alone,
    explicit cards in it ask for these cards whole, and "all" asks for every card whole only where node config
    says so. Empty and "void" are as if it were not set. "none" yields to an annotation that asks for a GPU,
    as the farther source, and contradicts an environment that does. UUIDs in an annotation set it aside
    altogether, and so does the placement of a cluster's scheduler: a container of a pod that was placed gets
    the cards that it names, and nothing where it names none.
    """
    _refuse_unknown_own(annotations, env)
    if not vocabulary.names_gpu(annotations, env):
        return None
    who = identity.identify(annotations, container_id)
    placed = _nearest(vocabulary.PLACED, annotations, env, config)
    if placed is not None and who.container not in placed.value:
        return None
    cards = _nearest(vocabulary.CARDS, annotations, env, config)
    if cards is not None and cards.value.count == 0:
        return None
    memory = _nearest(vocabulary.MEMORY, annotations, env, config)
    core = _nearest(vocabulary.CORE, annotations, env, config)
    asked = [stated for stated in (cards, memory, core) if stated is not None]
    visible = None
    if placed is None and (cards is None or not cards.value.uuids or cards.key.source == vocabulary.ENV):
        visible = _visible(env, [stated for stated in asked if stated.key.source == vocabulary.ENV])
    if not asked and not visible and not (visible == () and config.visible_devices_all == "whole-cards"):
        return None

    count = _count(cards, memory, core, visible)
    if memory is not None and count is not None:
        _check_memory(memory, count)
    policy = _nearest(vocabulary.POLICY, annotations, env, config)
    qos = _qos(_nearest(vocabulary.CLASS, annotations, env, config), memory, core)
    reclaimable = _reclaimable(_nearest(vocabulary.RECLAIMABLE, annotations, env, config), qos, memory)
    return Request(
        qos=qos,
        policy=None if policy is None else policy.value,
        count=count,
        uuids=() if cards is None else cards.value.uuids,
        candidates=visible or (),
        placed=placed.value[who.container] if placed else (),
        memory=None if memory is None else memory.value,
        core_percent=None if core is None else core.value,
        whole_cards=memory is None and core is None,
        reclaimable=reclaimable,
        identity=who,
    )


def _refuse_unknown_own(annotations: Mapping[str, str], env: Mapping[str, str]) -> None:
    for name in vocabulary.unknown_own(annotations, env):
        annotated = name.startswith(vocabulary.OWN_PREFIX)
        prefix = vocabulary.OWN_PREFIX if annotated else vocabulary.OWN_ENV_PREFIX
        known = sorted(key.name for key in vocabulary.KEYS if key.name.startswith(prefix))
        meant = "".join(f"did you mean {near}? " for near in get_close_matches(name, known, 1, 0.8))
        raise Refusal(
            "unknown-key", f"{quoted(name)} is not a key of mgpu", f"{meant}allowed: {', '.join(known)}"
        )


def _nearest(
    meaning: str, annotations: Mapping[str, str], env: Mapping[str, str], config: ParseConfig
) -> _Stated | None:
    keys = [key for key in vocabulary.KEYS if key.meaning == meaning]
    for source, values in ((vocabulary.ANNOTATION, annotations), (vocabulary.ENV, env)):
        stated = [
            _less_spare(_read(key, values[key.name], config), values, config)
            for key in keys
            if key.source == source and key.name in values
        ]
        if stated:
            return _agreed(stated)
    return None


def _read(key: Key, text: str, config: ParseConfig) -> _Stated:
    name = key.form
    if name == "aliyun-units":
        # ACK's device plugin counts memory in GiB units or in MiB, one or the other for the whole node.
        name = "mib" if config.aliyun_unit == "mib" else "gib-units"
    form = forms.FORMS[name]
    value = form.read(text)
    if value is None:
        raise _bad_value(key.name, text, form.allowed_instead_of(text))
    if name == "count-list":
        value = _own_count(key, text, value)
    return _Stated(key, text, value)


def _less_spare(stated: _Stated, values: Mapping[str, str], config: ParseConfig) -> _Stated:
    """Blocks without what the container does not get of the last one; all else as it is."""
    if stated.key.name != vocabulary.BLOCKS:
        return stated
    mib, text = stated.value.mib, stated.text
    if vocabulary.SPARE in values:
        [key] = [key for key in vocabulary.KEYS if key.name == vocabulary.SPARE]
        mib -= _read(key, values[key.name], config).value
        text = f"{text}, less {values[key.name]} MiB"
    if mib < forms.MIN_MIB:
        least = f"{units.BLOCK_MIB} MiB each, and {forms.MIN_MIB} MiB or more in all"
        raise _bad_value(stated.key.name, text, least)
    return _Stated(stated.key, stated.text, Memory(mib=mib))


def _own_count(key: Key, text: str, numbers: list[int]) -> forms.Cards:
    if len(set(numbers)) > 1:
        raise Refusal(
            "position-unknown",
            f"{key.name} is {quoted(text)}, and the container engine does not tell which container of the pod this is",
            "write mgpu.dev/gpus for each container instead, or the same number for all",
        )
    return forms.Cards(numbers[0])


def _bad_value(name: str, text: str, allowed: str) -> Refusal:
    return Refusal("bad-value", f"{name} is {quoted(text)}", f"allowed: {allowed}")


def _agreed(stated: list[_Stated]) -> _Stated:
    """The one thing that all of stated say; Refusal when two disagree."""
    first, *others = stated
    for other in others:
        if first.key.implies and other.key.implies and first.key.implies != other.key.implies:
            raise Refusal(
                "keys-disagree",
                f"{first} ({first.key.implies}) and {other} ({other.key.implies}) disagree",
                "keep one of them",
            )
        if not _same(first.value, other.value):
            raise _disagree(str(first), str(other))
    # The one that says most: UUIDs rather than their number, a class besides the number.
    return max(
        stated,
        key=lambda one: (bool(getattr(one.value, "uuids", ())), one.key.implies == vocabulary.OFFLINE),
    )


def _disagree(one: str, other: str) -> Refusal:
    return Refusal(
        "keys-disagree", f"{one} and {other} disagree", "keep one of them, or let both say the same"
    )


def _same(one: object, other: object) -> bool:
    if isinstance(one, forms.Cards) and isinstance(other, forms.Cards):
        named = one.uuids and other.uuids
        return one.count == other.count and (not named or set(one.uuids) == set(other.uuids))
    return one == other


def _visible(env: Mapping[str, str], asked_in_env: list[_Stated]) -> tuple[str, ...] | None:
    """The cards that NVIDIA_VISIBLE_DEVICES names, () for all, None for none or not set."""
    text = env.get(vocabulary.VISIBLE_DEVICES, "")
    if text in vocabulary.VISIBLE_DEVICES_UNSET:
        return None
    if text == vocabulary.VISIBLE_DEVICES_NONE:
        if asked_in_env:
            raise Refusal(
                "keys-disagree",
                f"{vocabulary.VISIBLE_DEVICES} {quoted(text)} and {asked_in_env[0]} disagree",
                f"leave {vocabulary.VISIBLE_DEVICES} out, or ask for no GPU",
            )
        return None
    visible = forms.visible_devices(text)
    if visible is None:
        raise _bad_value(vocabulary.VISIBLE_DEVICES, text, forms.VISIBLE_DEVICES_ALLOWED)
    return visible


def _count(
    cards: _Stated | None, memory: _Stated | None, core: _Stated | None, visible: tuple[str, ...] | None
) -> int | None:
    """The number of cards that the request comes to, checked against core; None for all."""
    if cards is not None:
        count = cast(int, cards.value.count)
        if core is not None:
            _check_core(core, count)
        return count
    if core is not None:
        percent = cast(int, core.value)
        if percent > 100 and percent % 100:
            raise Refusal(
                "core-too-large",
                f"{core} is more than one GPU",
                "allowed: 1 to 100, a multiple of 100, or a number of GPUs beside it",
            )
        return max(1, percent // 100)
    if memory is not None:
        return 1
    return len(visible) if visible else None


def _check_core(core: _Stated, count: int) -> None:
    percent = cast(int, core.value)
    _check_divides(core, percent, count)
    if percent > 100 * count:
        raise Refusal(
            "core-too-large",
            f"{core} is {percent // count} percent a GPU over {_cards(count)}",
            "allowed: 100 a GPU or less",
        )


def _check_memory(memory: _Stated, count: int) -> None:
    value = cast(Memory, memory.value)
    if value.percent is not None:
        return
    total = value.units if value.mib is None else value.mib
    assert total is not None
    # Blocks and GB count in MiB here: 3 GB over two cards are 1536 MiB each. A GiB unit is indivisible, as in
    # ACK.
    _check_divides(memory, total, count)
    if value.mib is not None and count > 1 and value.mib // count < MIN_MIB_PER_CARD_OF_SEVERAL:
        raise Refusal(
            "memory-too-small",
            f"{memory} is {value.mib // count} MiB a GPU over {_cards(count)}",
            f"allowed: {MIN_MIB_PER_CARD_OF_SEVERAL} MiB a GPU or more where a container has several",
        )


def _reclaimable(stated: _Stated | None, qos: Qos, memory: _Stated | None) -> bool:
    """Whether the memory gives way; Refusal where it cannot, or where two keys disagree."""
    if memory is not None and memory.key.implies == vocabulary.OFFLINE:
        if stated is not None and not stated.value:
            raise _disagree(f"{memory} (reclaimable)", str(stated))
        return True
    if stated is None or not stated.value:
        return False
    if qos == vocabulary.ONLINE:
        raise Refusal(
            "online-reclaimable",
            f"{stated} on an online container, whose memory never gives way",
            "make the container offline, or leave it out",
        )
    if memory is None:
        raise Refusal(
            "no-memory-to-reclaim",
            f"{stated} without an amount of memory",
            "ask for memory beside it, such as mgpu.dev/memory-mib",
        )
    return True


def _check_divides(stated: _Stated, total: int, count: int) -> None:
    if total % count:
        raise Refusal(
            "indivisible",
            f"{stated} does not divide evenly over {_cards(count)}",
            "allowed: a total of which each GPU gets an equal whole part",
        )


def _cards(count: int) -> str:
    return f"{count} GPU{'s' if count > 1 else ''}"


def _qos(explicit: _Stated | None, *amounts: _Stated | None) -> Qos:
    for amount in amounts:
        if amount is None or amount.key.implies != vocabulary.OFFLINE:
            continue
        # The offline amounts are annotations, so a class in the environment is farther and yields.
        if (
            explicit is not None
            and explicit.key.source == amount.key.source
            and explicit.value == vocabulary.ONLINE
        ):
            raise Refusal(
                "keys-disagree",
                f"{amount} (offline) and {explicit} (online) disagree",
                "keep one of them, or let both name one class",
            )
        return "offline"
    return "online" if explicit is None else cast(Qos, explicit.value)
