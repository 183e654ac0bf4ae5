"""The words of refusals about memory that gives way to online containers."""

from __future__ import annotations

from collections.abc import Iterable

from native_sched.daemon.grants.grants import Grant
from native_sched.daemon.node.inventory import CardInfo
from oci_specs.refusal import Refusal, printable, quoted
from oci_specs.vocabulary import MEMORY_RECLAIMABLE
from placement.cards import CardShare

# cuCheckpointProcess*() came with CUDA 12.8.
LEAST_DRIVER = 570
# Pairs of GPUs for its restoration came with CUDA 13.0.
LEAST_DRIVER_FOR_OTHERS = 580


def older(driver_version: str, least: int) -> bool:
    branch = driver_version.partition(".")[0]
    return branch.isdigit() and int(branch) < least


def can_evict(driver_version: str, card: CardInfo) -> bool:
    """Whether processes can be moved off the card: not by an older driver, nor from a MIG instance."""
    return card.instance is None and not older(driver_version, LEAST_DRIVER)


def refuse_unevictable(
    driver_version: str,
    granted: Iterable[CardShare],
    cards: Iterable[CardInfo],
    asked: str = f"{MEMORY_RECLAIMABLE} asked",
) -> None:
    """Refusal where no process can be moved off one of the cards. asked: what cannot be, for people."""
    if older(driver_version, LEAST_DRIVER):
        raise Refusal(
            "cannot-evict",
            f"{asked}, but driver {printable(driver_version)} does not move processes off a GPU",
            f"install driver {LEAST_DRIVER} or newer, or do without",
        )
    fixed = {card.index for card in cards if not can_evict(driver_version, card)}
    for card in granted:
        if card.index in fixed:
            raise Refusal(
                "cannot-evict",
                f"{asked}, but card {card.index} is a MIG instance, which no process is moved off",
                "name a GPU without MIG, or do without",
            )


def class_of_reclaimable(grant: Grant) -> Refusal:
    return Refusal(
        "reclaimable-online",
        f"the memory of container {quoted(grant.name)} gives way to online containers, so it cannot become one",
        "create it anew without the annotation",
    )


def not_running(grant: Grant) -> Refusal:
    return Refusal(
        "container-evicted",
        f"container {quoted(grant.name)} is {grant.reclaim.state}: its memory does not change meanwhile",
        "wait until it runs again, or resume it with mgpu resume",
    )


def not_bound(grant: Grant) -> Refusal:
    return Refusal(
        "container-not-running",
        f"container {quoted(grant.name)} is {grant.state}",
        "evict a container that runs",
    )


def not_evicted(grant: Grant) -> Refusal:
    return Refusal(
        "not-evicted",
        f"container {quoted(grant.name)} is {grant.reclaim.state}, not evicted",
        "see mgpu ps for those that are",
    )


def no_room_to_resume(grant: Grant, card: int, size: int, left: int) -> Refusal:
    return Refusal(
        "memory-full",
        f"container {quoted(grant.name)} needs {-(-size >> 20)} MiB on card {card}, where {left >> 20} MiB are free",
        "wait until online containers there need less, or end one",
    )
