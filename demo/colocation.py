"""The last act: an online burst beside an offline trainer, judged by the card's own account."""

import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from demo.arbiter import Arbiter
from demo.containerd import Containerd
from demo.failure import DemoFailedError
from demo.report import Report
from sim import cards
from sim.cards import Span

MS, US = 1e6, 1e3
HOLD_MS = 100
# What a busy machine may add to the moment at which the arbiter's thread wakes.
LATE_MS = 50
REQUESTS, PERIOD_MS, KERNELS, KERNEL_US = 16, 300, 20, 1000
SHAPE = ("--period-ms", str(PERIOD_MS), "--kernels", str(KERNELS), "--kernel-us", str(KERNEL_US))
START_TIMEOUT_S = 20


@dataclass(frozen=True)
class Request:
    """One request of the service, in ns of CLOCK_MONOTONIC."""

    submit_ns: int
    first_start_ns: int
    done_ns: int


def tell(report: Report, containerd: Containerd, arbiter: Arbiter, pictures: Path) -> None:
    report.heading("An online service beside an offline trainer, on one GPU")
    report.say(
        f"The service asks for {KERNELS} kernels of {KERNEL_US / 1000:g} ms every {PERIOD_MS} ms; the trainer keeps\n"
        f"kernels of 2 ms queued all the time. Offline work stays off for {HOLD_MS} ms after online's has ended."
    )
    shared = arbiter.root / "shared"
    shared.mkdir(exist_ok=True)
    card = arbiter.objects("devices")[0]
    asks = ["--env", "MGPU_MEMORY_MIB=2048", "--env", f"MGPU_GPUS={card['uuid']}"]
    asks += ["--env", "MGPU_POLICY=guaranteed-burst-share"]
    online, offline = ([*asks, "--env", f"MGPU_QOS={qos}"] for qos in ("online", "offline"))

    alone = containerd.load(
        "alone",
        online,
        arbiter.runtime,
        shared,
        "burst",
        *SHAPE,
        "--requests",
        "8",
        "--save",
        "/shared/alone",
    ).result()
    trainer = containerd.load("trainer", offline, arbiter.runtime, shared, "saturate", "--kernel-us", "2000")
    trainer_pid = _runs(arbiter, card["minor"], "trainer")
    service = containerd.load(
        "service",
        online,
        arbiter.runtime,
        shared,
        *("burst", *SHAPE, "--requests", str(REQUESTS), "--against", "/shared/alone"),
        *("--stamps", "/shared/stamps"),
    )
    service_pid = _runs(arbiter, card["minor"], "service")
    report.command("mgpu top --once", arbiter.mgpu("top", "--once"))
    picture, trace = pictures / "timeline.png", pictures / "timeline.json"
    pictures.mkdir(parents=True, exist_ok=True)
    drawn = arbiter.mgpu("timeline", "--seconds", "2", "--png", str(picture), "--trace", str(trace))
    report.command(f"mgpu timeline --seconds 2 --png {picture} --trace {trace}", drawn)
    beside = service.result()
    found = cards.timeline(arbiter.root / "sim" / "admin.sock", card["minor"])
    worked = trainer.stop()["devices"][0]
    lines = (shared / "stamps").read_text().splitlines()
    requests = [Request(*map(int, line.split())) for line in lines]
    spans = [span for span in found.spans if span.engine == "graphics"]
    _judge(report, requests, spans, service_pid, trainer_pid)
    slower = beside["latency_us"]["p99"] / alone["latency_us"]["p99"]
    report.say(
        f"The service's p99 is {beside['latency_us']['p99'] / 1000:.2f} ms, alone it was "
        f"{alone['latency_us']['p99'] / 1000:.2f} ms: {slower:.3f} times."
    )
    report.say(f"The trainer did {worked['kernels']} kernels meanwhile, each of them once and whole.")
    report.check("the picture of who had the GPU when is written", True, picture.stat().st_size > 0)
    shutil.rmtree(shared)


def _runs(arbiter: Arbiter, minor: int, name: str) -> int:
    """The container's process, once the card has run some of its work."""
    deadline = time.monotonic() + START_TIMEOUT_S
    admin = arbiter.root / "sim" / "admin.sock"
    while time.monotonic() < deadline:
        for one in arbiter.objects("ps"):
            if one["container_id"] != name or not one["pid"]:
                continue
            [graphics] = [
                engine for engine in cards.account(admin).cards[minor].engines if engine.engine == "graphics"
            ]
            if any(group.tgid == one["pid"] and group.run_ns for group in graphics.groups):
                return int(one["pid"])
        time.sleep(0.05)
    raise DemoFailedError(f"{name} did not get to work within {START_TIMEOUT_S} s")


def _judge(
    report: Report, requests: Sequence[Request], spans: Sequence[Span], online: int, offline: int
) -> None:
    theirs = [span for span in spans if span.kind == "run" and span.tgid == offline]
    mine = [span for span in spans if span.kind == "run" and span.tgid == online]
    off = [span.end_ns for span in spans if span.kind == "disable" and span.tgid == offline]
    suspend_us, start_us, release_ms, stolen_ns, closed_ns = [], [], [], 0, 0
    # The first finds the trainer just started.
    for request in requests[1:]:
        gone = next((at for at in off if at >= request.submit_ns), request.done_ns)
        ended = max(span.end_ns for span in mine if span.start_ns < request.done_ns)
        back = next((span.start_ns for span in theirs if span.start_ns >= max(gone, ended)), None)
        suspend_us.append((gone - request.submit_ns) / US)
        start_us.append((request.first_start_ns - request.submit_ns) / US)
        stolen_ns += _overlap(theirs, gone, ended + int(HOLD_MS * MS))
        if request is not requests[-1]:
            closed_ns += ended + int(HOLD_MS * MS) - request.submit_ns
        if back is not None:
            release_ms.append((back - ended) / MS)
    window = requests[1].submit_ns, requests[-1].submit_ns
    open_ns = window[1] - window[0] - closed_ns
    harvest = _overlap(theirs, *window) / open_ns * 100
    report.say("By the GPU's own account:")
    report.table(
        ("", "p50", "p99", "of"),
        [
            ("submit → the trainer is off the GPU, us", *_quantiles(suspend_us)),
            ("submit → the service's first kernel, us", *_quantiles(start_us)),
            ("the service's last kernel ended → the trainer runs again, ms", *_quantiles(release_ms)),
        ],
    )
    report.say(f"Of the time that the service and the hold left, the trainer had {harvest:.1f} %.")
    report.check("the trainer's time on the GPU from there until release", "0 ns", f"{stolen_ns} ns")
    report.check("release waits for the hold", True, min(release_ms) >= HOLD_MS)
    report.check("and comes soon after it", True, min(release_ms) < HOLD_MS + LATE_MS)


def _overlap(spans: Sequence[Span], begin_ns: int, end_ns: int) -> int:
    return sum(max(0, min(span.end_ns, end_ns) - max(span.start_ns, begin_ns)) for span in spans)


def _quantiles(values: Sequence[float]) -> tuple[str, str, str]:
    ordered = sorted(values)
    at = (ordered[int(len(ordered) * share)] for share in (0.5, 0.99))
    p50, p99 = (f"{value:.1f}" for value in at)
    return p50, p99, str(len(ordered))
