"""The words of refusals of `resume` onto other cards."""

from __future__ import annotations

from native_sched.daemon.grants.grants import Grant
from oci_specs.refusal import Refusal, printable, quoted
from placement.cards import CardShare, CardState


def another_count(grant: Grant, named: int) -> Refusal:
    return Refusal(
        "another-count",
        f"{named} cards named, and container {quoted(grant.name)} has {len(grant.cards)}",
        f"name {len(grant.cards)}, each once, or leave --gpus out",
    )


def old_driver(version: str, least: int) -> Refusal:
    return Refusal(
        "cannot-relocate",
        f"driver {printable(version)} restores a process onto its own GPUs only",
        f"install driver {least} or newer, or leave --gpus out",
    )


def closed_card(card: CardState) -> Refusal:
    return Refusal(
        "card-closed",
        f"card {card.index} ({card.uuid}) has fallen off the bus, or is drained",
        "name another one",
    )


def instance(card: CardState) -> Refusal:
    return Refusal(
        "cannot-relocate",
        f"card {card.index} ({card.uuid}) is a MIG instance, onto which no process is restored",
        "name a GPU without MIG",
    )


def another_model(card: CardState, left: CardShare) -> Refusal:
    return Refusal(
        "another-model",
        f"card {card.index} is a {card.name}, and what was on a {left.name} is restored onto such a one only",
        "name another one: see mgpu devices",
    )


def no_node(grant: Grant, card: CardState) -> Refusal:
    return Refusal(
        "no-node",
        f"container {quoted(grant.name)} was created without a device node of card {card.index}",
        "resume it onto its own cards, or create it anew",
    )


def holds(grant: Grant) -> Refusal:
    return Refusal(
        "still-on-a-card",
        f"container {quoted(grant.name)} has a process that was not evicted and has its card open",
        "end that one, such as a monitor with NVML, and try again, or leave --gpus out",
    )


def not_taken(grant: Grant, error: OSError) -> Refusal:
    return Refusal(
        "not-taken",
        f"the other cards do not take container {quoted(grant.name)} now ({error.strerror})",
        "try again in a second; everything is as before",
    )
