"""What mgpud refuses of a running container: one row for each, and where processes can leave a GPU at all."""

from collections.abc import Iterable

from native_sched.daemon.grants.grants import Grant
from native_sched.daemon.node.inventory import CardInfo
from oci_specs.refusal import Refusal, quoted
from oci_specs.vocabulary import MEMORY_RECLAIMABLE
from placement.cards import CardShare

# cuCheckpointProcess*() came with CUDA 12.8.
LEAST_DRIVER = 570
# Pairs of GPUs for its restoration came with CUDA 13.0.
LEAST_DRIVER_FOR_OTHERS = 580

# Code, what and why, what to do. {quoted} is the container's name, in quotes.
ROWS = {
    "draining": (
        "container-ended",
        "container {name} has ended, and its processes still hold what it was given",
        "wait until it is gone from mgpu ps",
    ),
    "no-card": (
        "no-card",
        "container {name} was given no GPU",
        "create it anew with what it needs, such as mgpu.dev/memory-mib",
    ),
    "whole-cards": (
        "whole-cards",
        "container {name} was given whole GPUs, which nobody else may use",
        "change its class only, or create it anew with memory or core",
    ),
    "not-even": (
        "not-even",
        "{key} {total} does not divide evenly over {count} GPUs",
        "allowed: a total of which each GPU gets an equal whole part",
    ),
    "core-over-cards": ("core-too-large", "core {total} is more than {cards}", "allowed: {most} at most"),
    "memory-below-least": (
        "memory-too-small",
        "{asked} MiB a GPU asked, and the least is {least} MiB",
        "allowed: {total} MiB or more in total",
    ),
    "memory-held": (
        "memory-held",
        "{asked} MiB asked, but container {name} holds {held} MiB on GPU {card}",
        "give it {held} MiB{each} or more, or have it free memory first",
    ),
    "memory-full": (
        "memory-full",
        "{asked} MiB asked, but of the {size} MiB of GPU {card} other containers were granted {granted} MiB",
        "ask for at most {free} MiB{each}, or wait until a container ends",
    ),
    "core-full": (
        "core-full",
        "{asked} asked, but other {qos} containers leave {free} percent of GPU {card}",
        "{hint}give another one less, or wait until one ends",
    ),
    "change-not-taken": (
        "not-taken",
        "the engine does not take the change of container {quoted} ({error})",
        "see what mgpud logs; everything is as before",
    ),
    "old-driver": (
        "cannot-evict",
        "{asked}, but driver {driver} does not move processes off a GPU",
        "install driver {least} or newer, or do without",
    ),
    "evict-instance": (
        "cannot-evict",
        "{asked}, but GPU {card} is a MIG instance, which no process is moved off",
        "name a GPU without MIG, or do without",
    ),
    "class-of-reclaimable": (
        "reclaimable-online",
        "the memory of container {quoted} gives way to online containers, so it cannot become one",
        "create it anew without the annotation",
    ),
    "not-running": (
        "container-evicted",
        "container {quoted} is {state}: its memory does not change meanwhile",
        "wait until it runs again, or resume it with mgpu resume",
    ),
    "not-bound": ("container-not-running", "container {quoted} is {state}", "evict a container that runs"),
    "not-evicted": (
        "not-evicted",
        "container {quoted} is {state}, not evicted",
        "see mgpu ps for those that are",
    ),
    "no-room-to-resume": (
        "memory-full",
        "container {quoted} needs {needs} MiB on GPU {card}, where {left} MiB are free",
        "wait until online containers there need less, or end one",
    ),
    "another-count": (
        "another-count",
        "{named} GPUs named, and container {quoted} has {count}",
        "name {count}, each once, or leave --gpus out",
    ),
    "driver-restores-in-place": (
        "cannot-relocate",
        "driver {driver} restores a process onto its own GPUs only",
        "install driver {least} or newer, or leave --gpus out",
    ),
    "card-closed": (
        "card-closed",
        "GPU {card} ({uuid}) has fallen off the bus, or is drained",
        "name another one",
    ),
    "resume-on-instance": (
        "cannot-relocate",
        "GPU {card} ({uuid}) is a MIG instance, onto which no process is restored",
        "name a GPU without MIG",
    ),
    "another-model": (
        "another-model",
        "GPU {card} is a {model}, and what was on a {left} is restored onto such a one only",
        "name another one: see mgpu devices",
    ),
    "no-node": (
        "no-node",
        "container {quoted} was created without a device node of GPU {card}",
        "resume it onto its own GPUs, or create it anew",
    ),
    "holds-card": (
        "still-on-a-card",
        "container {quoted} has a process that was not evicted and has its GPU open",
        "end that one, such as a monitor with NVML, and try again, or leave --gpus out",
    ),
    "cards-not-taken": (
        "not-taken",
        "the other GPUs do not take container {quoted} now ({error})",
        "try again in a second; everything is as before",
    ),
}


def refuse(row: str, grant: Grant | None = None, **given: object) -> Refusal:
    """The refusal of this row."""
    name = grant.name if grant else ""
    code, message, hint = (part.format(name=name, quoted=quoted(name), **given) for part in ROWS[row])
    return Refusal(code, message, hint)


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
        raise refuse("old-driver", asked=asked, driver=driver_version, least=LEAST_DRIVER)
    fixed = {card.index for card in cards if not can_evict(driver_version, card)}
    for card in granted:
        if card.index in fixed:
            raise refuse("evict-instance", asked=asked, card=card.index)
