"""What the container and the operator see, side by side, against what was promised."""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from demo.arbiter import Arbiter
from demo.containerd import Container
from demo.report import Report

MIB = 1 << 20
CUDA_ERROR_OUT_OF_MEMORY = 2
# Grants are back within a second of the container's end.
RELEASE_S = 1.0


@dataclass(frozen=True)
class Promise:
    """How many cards the container sees, and how much memory on each, in MiB."""

    cards: int
    memory_mib: int


def granted(report: Report, arbiter: Arbiter, container: Container, promise: Promise) -> None:
    """Check and show a container that has filled its cards and waits."""
    reported = container.report()
    report.command(f"(in {container.name}) gpustat", container.execute("gpustat", "--no-color"))
    report.command("mgpu ps", arbiter.mgpu("ps"))
    inside = json.loads(container.execute("gpustat", "--json"))["gpus"]
    grants = [found for found in arbiter.objects("ps") if found["container_id"] == container.name]
    outside = grants[0]["cards"] if grants else []
    report.say(f"{container.name}, GPU by GPU, in MiB; used/total in gpustat, used/cap in mgpu ps:")
    report.table(
        ("card", "gpustat", "cuMemGetInfo", "allocated", "one byte more", "mgpu ps"),
        [_row(*views) for views in zip(inside, reported, outside, strict=False)],
    )
    report.say(
        "A CUDA context and page tables count against the cap, too: they are used beyond what was allocated."
    )
    mib, size_bytes = f"{promise.memory_mib} MiB", f"{promise.memory_mib * MIB} bytes"
    report.check("GPUs that gpustat sees", promise.cards, len(inside))
    report.check("GPUs that CUDA sees", promise.cards, len(reported))
    report.check("memory of a GPU in gpustat", mib, _each(inside, "memory.total", "MiB"))
    report.check("memory of a GPU in cuMemGetInfo", size_bytes, _each(reported, "total_bytes", "bytes"))
    report.check(
        "memory of a GPU in cuDeviceTotalMem", size_bytes, _each(reported, "device_total_bytes", "bytes")
    )
    report.check("cap of a GPU in mgpu ps", mib, _each(outside, "memory_mib", "MiB"))
    report.check(
        "CUDA's answer to one byte over the cap",
        f"error {CUDA_ERROR_OUT_OF_MEMORY} (out of memory)",
        _answer(reported, "one_byte_more"),
    )
    # Page tables of so many blocks take less than a hundredth.
    held = all(card["taken_bytes"] >= 0.99 * card["free_bytes"] for card in reported)
    report.check("all that was free could be allocated, but for page tables", True, held and bool(reported))
    within = all(card["used_bytes"] <= card["memory_mib"] * MIB for card in outside)
    report.check("no GPU holds more than its cap", True, within and bool(outside))


def lives_on(report: Report, container: Container) -> None:
    """Let the container free what it holds and allocate again, and end."""
    container.go_on()
    answer = _answer(container.report(), "again")
    report.check(f"CUDA's answer when {container.name} frees and allocates again", "success", answer)
    container.go_on()
    report.check(f"exit status of {container.name}", 0, container.end())


def nothing_left(report: Report, arbiter: Arbiter) -> None:
    """Check that the node is as before the first container."""
    report.heading("After the containers")
    deadline = time.monotonic() + RELEASE_S
    while arbiter.objects("ps") and time.monotonic() < deadline:
        time.sleep(0.05)
    report.command("mgpu ps", arbiter.mgpu("ps"))
    cards = arbiter.objects("devices")
    report.check("containers that hold a GPU", 0, len(arbiter.objects("ps")))
    report.check("granted of each GPU", "0 MiB", _each(cards, "granted_mib", "MiB"))
    report.check("used of each GPU", "0 bytes", _each(cards, "used_bytes", "bytes"))


def _row(gpustat: Mapping[str, Any], cuda: Mapping[str, Any], grant: Mapping[str, Any]) -> list[str]:
    return [
        str(gpustat["index"]),
        f"{gpustat['memory.used']}/{gpustat['memory.total']}",
        f"{cuda['total_bytes'] / MIB:g}",
        f"{cuda['taken_bytes'] / MIB:g}",
        f"error {cuda['one_byte_more']}",
        f"{grant['used_bytes'] / MIB:g}/{grant['memory_mib']}",
    ]


def _each(cards: Sequence[Mapping[str, Any]], key: str, unit: str) -> str:
    """The value that all cards agree on, with its unit; the different ones there are when they do not."""
    return " and ".join(f"{value} {unit}" for value in sorted({card[key] for card in cards})) or "nothing"


def _answer(cards: Sequence[Mapping[str, Any]], key: str) -> str:
    """CUDA's status on all cards, in words; the different ones there are when they do not agree."""
    words = {0: "success", CUDA_ERROR_OUT_OF_MEMORY: f"error {CUDA_ERROR_OUT_OF_MEMORY} (out of memory)"}
    answers = sorted({card[key] for card in cards})
    return " and ".join(words.get(answer, f"error {answer}") for answer in answers) or "nothing"
