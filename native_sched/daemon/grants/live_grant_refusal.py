"""The words of refusals of `set`: what was asked of a running container, what there is, what to do."""

from __future__ import annotations

from native_sched.daemon.grants.grants import Grant
from oci_specs.refusal import Refusal, quoted
from oci_specs.request import Qos
from placement.cards import CardShare, CardState


def draining(grant: Grant) -> Refusal:
    return Refusal(
        "container-ended",
        f"container {grant.name} has ended, and its processes still hold what it was given",
        "wait until it is gone from mgpu ps",
    )


def no_card(grant: Grant) -> Refusal:
    return Refusal(
        "no-card",
        f"container {grant.name} was given no card",
        "create it anew with what it needs, such as mgpu.dev/memory-mib",
    )


def whole_cards(grant: Grant) -> Refusal:
    return Refusal(
        "whole-cards",
        f"container {grant.name} was given whole cards, which nobody else may use",
        "change its class only, or create it anew with memory or core",
    )


def not_even(name: str, total: int, count: int) -> Refusal:
    return Refusal(
        "not-even",
        f"{name} {total} does not divide evenly over {count} cards",
        "allowed: a total of which each card gets an equal whole part",
    )


def core_over_a_card(total: int, count: int) -> Refusal:
    cards = "1 card" if count == 1 else f"{count} cards"
    return Refusal("core-too-large", f"core {total} is more than {cards}", f"allowed: {100 * count} at most")


def memory_below_least(asked_mib: int, least_mib: int, count: int) -> Refusal:
    return Refusal(
        "memory-too-small",
        f"{asked_mib} MiB a card asked, and the least is {least_mib} MiB",
        f"allowed: {least_mib * count} MiB or more in total",
    )


def memory_held(grant: Grant, card: CardShare, asked_mib: int, held_mib: int) -> Refusal:
    each = " a card" if len(grant.cards) > 1 else ""
    return Refusal(
        "memory-held",
        f"{asked_mib} MiB asked, but container {grant.name} holds {held_mib} MiB on card {card.index}",
        f"give it {held_mib} MiB{each} or more, or have it free memory first",
    )


def memory_full(grant: Grant, asked_mib: int, others: CardState) -> Refusal:
    """others: the card without the container's own grant."""
    free_mib = others.free_for(grant.qos, reclaimable=grant.reclaimable)
    each = " a card" if len(grant.cards) > 1 else ""
    return Refusal(
        "memory-full",
        f"{asked_mib} MiB asked, but of the {others.memory_mib} MiB of card {others.index} "
        f"other containers were granted {others.memory_mib - free_mib} MiB",
        f"ask for at most {free_mib} MiB{each}, or wait until a container ends",
    )


def core_full(grant: Grant, card: CardShare, qos: Qos, free: int) -> Refusal:
    asked = (
        f"a part of what {qos} containers leave"
        if card.core_percent is None
        else f"core {card.core_percent}"
    )
    each = " a card" if len(grant.cards) > 1 else ""
    wait = "give another one less, or wait until one ends"
    return Refusal(
        "core-full",
        f"{asked} asked, but other {qos} containers leave {free} percent of card {card.index}",
        f"ask for at most core {free}{each}, {wait}" if free else wait,
    )


def not_taken(grant: Grant, error: OSError) -> Refusal:
    return Refusal(
        "not-taken",
        f"the engine does not take the change of container {quoted(grant.name)} ({error.strerror})",
        "see what mgpud logs; everything is as before",
    )
