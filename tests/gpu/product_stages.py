"""mgpu end to end on a card: caps seen and kept, online beside offline, what it costs, hostile attempts."""

import itertools
import json
import os
import subprocess
import sys
import time
from typing import Any

from oci_specs import paths
from tests.gpu import calls, first
from tests.gpu.backend import PROGRAMS, python_with
from tests.gpu.hostile import ATTEMPTS, ON_A_SIMULATED_CARD, Attempt, numbers
from tests.gpu.product import Product, environment
from tests.gpu.results import Result, Results, quantiles
from tests.gpu.stage import CannotSayError

CAP_MIB = 4309
PERIOD_MS, KERNEL_US = 50, 1000
KILLED = 137
# What the driver itself takes for a client or two, which no cap is for.
UNCAPPED_MIB = 64
STEP_BYTES = 16 << 20

SHOW = """
import json, pynvml
pynvml.nvmlInit()
h = pynvml.nvmlDeviceGetHandleByIndex(0)
m = pynvml.nvmlDeviceGetMemoryInfo(h)
print(json.dumps({"total_mib": m.total >> 20, "free_mib": m.free >> 20, "used_mib": m.used >> 20}))
"""
TORCH = """
import json, torch
kept = []
total = torch.cuda.mem_get_info()[1] >> 20
try:
    while True:
        kept.append(torch.empty(256 << 20, dtype=torch.uint8, device="cuda"))
except torch.cuda.OutOfMemoryError:
    held = 256 * len(kept)
kept.clear()
torch.cuda.empty_cache()
a = torch.ones(1024, 1024, device="cuda")
print(json.dumps({"total_mib": total, "oom_at_mib": held, "after": float((a @ a).sum()) == 1024.0**3}))
"""


def load(*args: str) -> list[str]:
    return [paths.libexec("mgpu-load"), *args, "-o", "json"]


def view(product: Product, results: Results, out: Result) -> None:
    """What NVML and nvidia-smi show inside."""
    python = [sys.executable, "-c", SHOW]
    with product.container(
        ["env", f"PYTHONPATH={os.environ['PYTHONPATH']}", *python], memory_mib=CAP_MIB
    ) as box:
        ran = box.end()
    out.figures["nvml"] = ran.document() or ran.out[-600:]
    shown = ran.document().get("total_mib") == CAP_MIB
    if product.driver == "nvidia":
        with product.container(["nvidia-smi"], memory_mib=CAP_MIB) as box:
            ran = box.end()
        results.log(f"nvidia-smi inside: {ran.out}")
        shown &= f"{CAP_MIB}MiB" in ran.out
    out.verdict = "shows the cap" if shown else "does not show the cap"


def memory(product: Product, results: Results, out: Result) -> None:
    """An allocation within the cap, one beyond it, and one within it again."""
    codes = []
    for mib in (512, 16384, 512):
        with product.container(load("alloc", "--mib", str(mib)), memory_mib=CAP_MIB) as box:
            ran = box.end()
        codes.append(ran.document().get("code", ran.out[-300:]))
    out.figures["codes"] = codes
    out.verdict = "out of memory at the cap, goes on" if codes == [0, 2, 0] else "not as expected"


# mgpud looks once a second, less often where there is much to look at.
MANAGED_LOOK_S = 5


def managed(product: Product, results: Results, out: Result) -> None:
    """Managed memory is charged by its size: there is none above the cap, and all of it is free again some
    time after a free, which is an munmap that mgpud sees when it looks.
    """
    above = f"managed?={2 * CAP_MIB}"
    words = (
        "init",
        "context",
        "managed=1024",
        "info",
        above,
        "free",
        f"hold={MANAGED_LOOK_S}",
        "info",
        "managed=1024",
        "destroy",
    )
    with product.container(first.steps(*words), memory_mib=CAP_MIB) as box:
        found = first.does_on(box.end(), words, out, results)
    if found:
        beyond, gained = found[4]["code"], found[7]["free_mib"] - found[3]["free_mib"]
        held = beyond == first.OUT_OF_MEMORY and gained >= 1024
        out.verdict = "charged by its size" if held else f"error {beyond}, {gained} MiB more after the free"


# By a handle of CUDA IPC, and by a descriptor: made in one process, used and let go in another.
BETWEEN = (
    "a alloc 256", "a share", "b open", "b room", "b close", "a free",
    "a create 256", "a export", "b import", "b release", "a drop", "a release",
)  # fmt: skip
# Each process does what it is told when it is told: the other has to have done its part. The first makes its
# context.
BETWEEN_S = 0.2


def between(product: Product, results: Results, out: Result) -> None:
    """Two processes of a container that have the same memory."""
    with product.container(between_processes(), memory_mib=CAP_MIB) as box:
        ran = box.end()
    out.figures["said"] = lines = [word for word in ran.out.split() if word != "ready"]
    # Every step but the question for room says CUDA's error.
    wrong = [f"{step}: {said}" for step, said in zip(BETWEEN, lines, strict=False)
             if said != "0" and not step.endswith("room")]  # fmt: skip
    whole = len(lines) == len(BETWEEN)
    out.verdict = (
        "shared both ways" if whole and not wrong else "; ".join(wrong) or f"ends after {len(lines)} steps"
    )


def between_processes() -> list[str]:
    told = "; ".join(f"echo {step}; sleep {BETWEEN_S}" for step in BETWEEN)
    return ["sh", "-c", f"{{ sleep 2; {told}; }} | {PROGRAMS / 'ipc'}"]


def in_turn(product: Product, results: Results, out: Result) -> None:
    """Processes of a container, one after the other: each has all that the last one had, as soon as that has
    ended.
    """
    began = time.monotonic()
    with product.container([str(PROGRAMS / "in_turn"), "3"], memory_mib=CAP_MIB) as box:
        ran = box.end(40)
    had = [int(word) for word in ran.out.split() if word.isdigit()]
    out.figures = {"had_mib": [size >> 20 for size in had], "seconds": round(time.monotonic() - began, 2)}
    # in_turn.c goes down in steps where the driver wants some of it for itself.
    same = len(had) == 3 and max(had) - min(had) <= STEP_BYTES
    out.verdict = "each has all" if same else f"not as expected: {ran.out[-300:]}"


def torch(product: Product, results: Results, out: Result) -> None:
    """The machine's own PyTorch, where there is one."""
    python = python_with("torch")
    if product.driver == "sim" or not python:
        raise CannotSayError("no Python here has torch, or it would have no card to compute on")
    with product.container([python, "-c", TORCH], memory_mib=CAP_MIB) as box:
        ran = box.end(60)
    results.log(f"torch: {ran.out}")
    out.figures = ran.document()
    held = out.figures.get("oom_at_mib", 1 << 30) <= CAP_MIB and out.figures.get("after")
    out.verdict = "out of memory at the cap, goes on" if held else "not as expected"


def colocation(product: Product, results: Results, out: Result) -> None:
    """Online bursts beside offline saturation: preemption, interference, harvest, release."""
    burst = ("burst", "--period-ms", str(PERIOD_MS), "--kernels", "1", "--kernel-us", str(KERNEL_US))
    with product.container(load(*burst, "--seconds", str(product.paced(2)))) as box:
        alone = box.end().document()
    with product.container(
        load("saturate", "--kernel-us", "5000", "--seconds", str(product.paced(2))), qos="offline"
    ) as box:
        by_itself = box.end().document()
    with product.container(load("saturate", "--kernel-us", "5000"), qos="offline") as offline:
        time.sleep(product.paced(2))
        # Busy for 400 ms, then idle for longer than the hold.
        responses = []
        for _ in range(product.paced(4)):
            with product.container(load(*burst, "--seconds", "0.4")) as box:
                responses.append(box.end().document())
            time.sleep(0.4)
        rows = {one["container_id"]: one["id"] for one in product.containers()}
        told = product.ask("timeline", since=0)["events"]
        offline_report = offline.stop().document()
    mine = [(at, kind, why) for at, _, grant, kind, _, why, *_ in told if grant == rows.get(offline.name)]
    took = [
        (b[0] - a[0]) / 1000 for a, b in itertools.pairwise(mine) if (a[1], b[1]) == ("suspend", "suspended")
    ]
    out.figures |= {
        "alone": alone,
        "beside": responses,
        "offline_alone": by_itself,
        "offline_beside": offline_report,
        "without": product.ask("health")["without"],
        "suspend_us": quantiles(took),
        "suspensions": sum(kind == "suspended" for _, kind, _ in mine),
        "resumptions": sum(kind == "running" for _, kind, _ in mine),
    }
    seen = out.figures["suspensions"]
    out.verdict = (
        "offline gives way and comes back"
        if seen and out.figures["resumptions"]
        else "offline does not give way"
    )


def overhead(product: Product, results: Results, out: Result) -> None:
    """One container's kernels per second under mgpu against a plain process's."""
    work = load("saturate", "--kernel-us", "1000", "--seconds", str(product.paced(2)))
    with product.container(work) as box:
        under = box.end().document()
    out.figures["under_mgpu"] = under
    if product.driver == "nvidia":
        done = subprocess.run(work, capture_output=True, text=True, check=False, env=environment("nvidia"))
        plain: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1]) if done.stdout else {}
        out.figures["plain"] = plain
        if under.get("kernels") and plain.get("kernels"):
            out.figures["ratio"] = under["kernels"] / plain["kernels"]
    out.verdict = "measured" if under else "did not run"


def held(product: Product, attempt: Attempt, results: Results) -> str:
    """Empty when it was held: by its own words, the ledger and the driver's count. Else why not."""
    before = product.card_used_mib()
    argv = [str(PROGRAMS / attempt.argv[0]), *attempt.argv[1:]]
    with product.container(argv, memory_mib=attempt.cap_mib) as box:
        line = box.line()
        held_mib = [
            share["used_bytes"] >> 20
            for row in product.containers()
            if row["container_id"] == box.name
            for share in row["cards"]
        ]
        on_card = product.card_used_mib() - before
        status = box.process.poll()
    results.log(
        f"attempt {attempt.name}: {line.strip()!r}, status {status}, {held_mib} MiB held, {on_card} on the card"
    )
    # One that is held stands still, so whatever ended by itself tried nothing.
    if status not in (None, KILLED) or not (line or status):
        return f"said {line.strip()!r} and ended with {status}"
    if line and not attempt.judge(numbers(line), line):
        return f"said {line.strip()!r}"
    if any(one > attempt.cap_mib for one in held_mib):
        return f"holds {held_mib} MiB"
    most = sum(held_mib) if attempt.covered else attempt.cap_mib
    return f"{on_card} MiB on the card, {held_mib} MiB held" if on_card > most + UNCAPPED_MIB else ""


def attempts(product: Product, results: Results, out: Result) -> None:
    """Each attempt ends refused or accounted, and mgpud is alive after it."""
    chosen = ON_A_SIMULATED_CARD if product.driver == "sim" else ATTEMPTS
    out.figures = {one.name: held(product, one, results) or "held" for one in chosen}
    product.ask("health")
    wrong = [name for name, said in out.figures.items() if said != "held"]
    out.verdict = "all held" if not wrong else f"to be looked at: {', '.join(wrong)}"


def rm_cost(product: Product, results: Results, out: Result) -> None:
    """Mediated calls against the driver's own: allocation and free of 64 KiB, a memory view."""
    program = [str(PROGRAMS / "rm_latency"), str(product.paced(2000))]
    with product.container(program) as box:
        out.figures["mediated"] = box.end().document()
    if product.driver == "nvidia":
        done = subprocess.run(program, capture_output=True, text=True, check=False)
        out.figures["plain"] = json.loads(done.stdout) if done.returncode == 0 else done.stderr[-300:]
    out.verdict = "measured" if out.figures["mediated"] else "did not run"


# As many processes one after the other, and in how long the last one's files are closed for sure.
STARTS, APART, APART_MS = 9, 4, 500


def start(product: Product, results: Results, out: Result) -> None:
    """cuInit and a context in processes one after the other: in a container, with pauses, beside offline
    work, and without mgpu (at most 5 % more is wanted); and which calls take longest.
    """
    program = str(PROGRAMS / "cuda_start")
    one_by_one = [program, str(product.paced(STARTS))]
    spaced = [program, str(product.paced(APART)), str(APART_MS)]
    for name, argv in (("mediated", one_by_one), ("mediated_apart", spaced)):
        with product.container(argv) as box:
            out.figures[name] = box.end().document()
    with product.container(load("saturate", "--kernel-us", "5000"), qos="offline") as offline:
        time.sleep(1)
        with product.container(one_by_one) as box:
            out.figures["beside_offline"] = box.end().document()
        offline.stop()
    with product.container(calls.told([program, "3"])) as box:
        out.figures["calls"] = box.end().document()
    if product.driver == "nvidia":
        for name, argv in (("plain", one_by_one), ("plain_apart", spaced)):
            done = subprocess.run(
                argv, capture_output=True, text=True, check=False, env=environment("nvidia")
            )
            out.figures[name] = json.loads(done.stdout) if done.returncode == 0 else done.stderr[-300:]
            if done.returncode == 0 and (mediated := out.figures[name.replace("plain", "mediated")]):
                out.figures[f"ratio of {name}"] = mediated["p50_us"] / out.figures[name]["p50_us"]
    out.verdict = "measured" if out.figures["mediated"] else "did not run"
