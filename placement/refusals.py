"""The words of placement's refusals: how much was asked, what there is, what to do."""

from collections.abc import Sequence

from oci_specs.refusal import Refusal, quoted
from oci_specs.request import Request
from oci_specs.vocabulary import PLACEMENT, VISIBLE_DEVICES
from placement import room
from placement.cards import CardState
from placement.room import Lack, Verdict
from placement.rules import Rules

# A node with many cards would make the line unreadable.
_LISTED_CARDS = 8
_UUIDS = "the UUIDs"


def unknown_card(name: str, cards: Sequence[CardState]) -> Refusal:
    there = ", ".join(f"{card.index} ({card.uuid})" for card in cards[:_LISTED_CARDS]) or "none"
    more = f" and {len(cards) - _LISTED_CARDS} more" if len(cards) > _LISTED_CARDS else ""
    return Refusal("unknown-card", f"this node has no GPU {quoted(name)}", f"its GPUs are: {there}{more}")


def ambiguous(name: str, found: Sequence[CardState]) -> Refusal:
    return Refusal(
        "ambiguous-card",
        f"{quoted(name)} is the beginning of {len(found)} GPUs' UUIDs",
        f"write more of the UUID: {' or '.join(card.uuid for card in found[:_LISTED_CARDS])}",
    )


def too_few(request: Request, count: int, candidates: int, there: int) -> Refusal:
    asked = f"{_counted(count, 'GPU')} asked" if count else "GPUs asked"
    if there == 0:
        return Refusal("no-cards", f"{asked}, and this node has none", "run it on a node with GPUs")
    if candidates < there:
        by = _left_by(request)
        return Refusal(
            "too-few-cards",
            f"{asked}, and {by} leave{'' if by == _UUIDS else 's'} {candidates} of {there}",
            f"ask for at most {candidates}, or name others" if candidates else "name others",
        )
    return Refusal("too-few-cards", f"{asked}, and this node has {there}", f"ask for at most {there}")


def _left_by(request: Request) -> str:
    if request.candidates:
        return VISIBLE_DEVICES
    return _UUIDS if request.uuids else PLACEMENT


def placed_elsewhere(request: Request, refusal: Refusal) -> Refusal:
    """The refusal of a container whose cards a scheduler chose: it is the scheduler's choice that fails."""
    shown = ", ".join(request.placed[:_LISTED_CARDS])
    return Refusal(
        refusal.code,
        f"{PLACEMENT} names {shown}, and there {refusal.message}",
        "delete the pod, so that it is placed anew",
    )


def same_gpu(count: int, gpus: int) -> Refusal:
    return Refusal(
        "same-gpu",
        f"{_counted(count, 'GPU')} asked, and those that fit are MIG instances of {_counted(gpus, 'GPU')}: "
        "a container gets at most one of each",
        f"ask for at most {gpus}, or for instances of other GPUs",
    )


def policies_differ(count: int, fitting: Sequence[Verdict]) -> Refusal:
    owners = ", ".join(f"GPU {one.card.index} runs {_policy(one)}" for one in fitting[:_LISTED_CARDS])
    return Refusal(
        "policy-conflict",
        f"{_counted(count, 'GPU')} asked, which must run one policy, but {owners}",
        f"ask for fewer GPUs, or {_until_free(fitting, 'wait until one of these containers ends')}",
    )


def no_room(request: Request, count: int, verdicts: Sequence[Verdict], rules: Rules) -> Refusal:
    """Told from the cards that came closest; the others would need even more."""
    nearest = max(verdict.lack for verdict in verdicts if verdict.lack is not None)
    lacking = [verdict for verdict in verdicts if verdict.lack == nearest]
    fit = sum(verdict.lack is None for verdict in verdicts)
    code, asked, why, hint = _REASONS[nearest](request, count, lacking, rules)
    if count > 1:
        asked = f"{asked} on each of {count} GPUs"
    there = (
        f"{fit} of {len(verdicts)} GPUs {'has' if fit == 1 else 'have'} room, and elsewhere " if fit else ""
    )
    return Refusal(code, f"{asked} asked, but {there}{why}", hint)


_Reason = tuple[str, str, str, str]


def _why_policy(request: Request, count: int, lacking: Sequence[Verdict], rules: Rules) -> _Reason:
    runs = ", ".join(f"GPU {one.card.index} runs {_policy(one)}" for one in lacking[:_LISTED_CARDS])
    policies = " or ".join(sorted({one.policy for one in lacking}))
    until = _until_free(lacking, "wait until that container ends")
    hint = f"ask for {policies}, leave the policy out, or {until}"
    return "policy-conflict", f"policy {request.policy}", runs, hint


def _why_card_size(request: Request, count: int, lacking: Sequence[Verdict], rules: Rules) -> _Reason:
    largest = max(lacking, key=lambda one: one.card.memory_mib)
    return (
        "card-too-small",
        f"{largest.share.memory_mib} MiB",
        f"the largest GPU has {largest.card.memory_mib} MiB",
        "ask for less, or for more GPUs",
    )


def _why_least_memory(request: Request, count: int, lacking: Sequence[Verdict], rules: Rules) -> _Reason:
    most = max(lacking, key=lambda one: one.share.memory_mib)
    percent = request.memory.percent if request.memory is not None else None
    return (
        "memory-too-small",
        f"{percent or most.share.core_percent} percent of a GPU",
        f"that share of its memory is {most.share.memory_mib} MiB and the least is {room.least_mib(count)} MiB",
        "ask for more of it" if percent else "ask for more core, or for memory beside it",
    )


def _why_containers(request: Request, count: int, lacking: Sequence[Verdict], rules: Rules) -> _Reason:
    return (
        "card-full",
        "a place",
        f"{_each(lacking)} {_counted(rules.max_containers_per_card, 'container')}, which is the most",
        "wait until a container ends",
    )


def _why_occupied(request: Request, count: int, lacking: Sequence[Verdict], rules: Rules) -> _Reason:
    return (
        "card-occupied",
        "a whole GPU",
        f"{_each(lacking)} other containers",
        "ask for memory or core to share a GPU, or wait until they end",
    )


def _why_memory(request: Request, count: int, lacking: Sequence[Verdict], rules: Rules) -> _Reason:
    most = max(lacking, key=lambda one: (room.free_mib(request, one.card), -one.card.index))
    free = max(0, room.free_mib(request, most.card))
    return (
        "memory-full",
        f"{most.share.memory_mib} MiB",
        f"the most that is free is {free} MiB, on GPU {most.card.index}",
        f"ask for at most {free} MiB a GPU, or wait until a container ends"
        if free >= room.least_mib(count)
        else "wait until a container ends",
    )


def _why_core(request: Request, count: int, lacking: Sequence[Verdict], rules: Rules) -> _Reason:
    def free(one: Verdict) -> int:
        return room.free_core(one.card, request.qos, one.policy)

    most = max(lacking, key=lambda one: (free(one), -one.card.index))
    core = most.share.core_percent
    return (
        "core-full",
        f"a part of what {request.qos} containers leave" if core is None else f"core {core}",
        f"the most that they leave is {free(most)} percent, on GPU {most.card.index}"
        if core is None
        else f"the most that {request.qos} containers leave is {free(most)} percent, on GPU {most.card.index}",
        f"ask for at most core {free(most)} a GPU, or wait until a container ends"
        if free(most)
        else "wait until a container ends",
    )


_REASONS = {
    Lack.POLICY: _why_policy,
    Lack.CARD_SIZE: _why_card_size,
    Lack.LEAST_MEMORY: _why_least_memory,
    Lack.CONTAINERS: _why_containers,
    Lack.OCCUPIED: _why_occupied,
    Lack.MEMORY: _why_memory,
    Lack.CORE: _why_core,
}


def _policy(verdict: Verdict) -> str:
    if verdict.card.policy is None:
        return f"{verdict.policy} (the node's)"
    owner = verdict.card.policy_owner
    return f"{verdict.policy}, set by {'the operator' if owner is None else quoted(owner)}"


def _until_free(verdicts: Sequence[Verdict], ends: str) -> str:
    """How the cards come to run another policy: what the operator set outlasts every container."""
    by_operator = any(one.card.policy is not None and one.card.policy_owner is None for one in verdicts)
    return "have the operator set another with mgpu policy" if by_operator else ends


def _each(lacking: Sequence[Verdict]) -> str:
    if len(lacking) == 1:
        return f"GPU {lacking[0].card.index} has"
    return f"each of {len(lacking)} GPUs has"


def _counted(count: int, thing: str) -> str:
    return f"{count} {thing}{'s' if count > 1 else ''}"
