"""The first minutes of mgpu on a card: each stage asks for a little more than the one before it did."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.gpu.product import Product, Run, environment
from tests.gpu.results import Result, Results
from tests.gpu.stage import CannotSayError

CAP_MIB = 4309
OUT_OF_MEMORY = 2
STEPS = Path(__file__).with_name("cuda_steps.py")
TWO, NINE = 2, 9
PIECE_MIB = 16
Step = dict[str, Any]


def steps(*words: str) -> list[str]:
    return [sys.executable, str(STEPS), *words]


def said(text: str) -> list[Step]:
    """A program's steps; what is no JSON between them is a library's talk."""
    found = []
    for line in text.splitlines():
        if line.startswith("{"):
            found.append(json.loads(line))
    return found


def stopped_at(found: list[Step], words: tuple[str, ...]) -> str:
    """The first step that failed or never came; empty: all of them were done."""
    for i, word in enumerate(words):
        if i >= len(found):
            return f"{word}, which did not come back"
        if found[i]["step"] != word:
            return f"{found[i]['step']}: {found[i]['code']}"
        if found[i]["code"] and not word.partition("=")[0].endswith("?"):
            return f"{word}: error {found[i]['code']}"
    return ""


def does(product: Product, results: Results, out: Result, *words: str) -> list[Step]:
    """What each step said, inside; empty where one failed. Natively too, where mgpu stops it."""
    with product.container(steps(*words), memory_mib=CAP_MIB) as box:
        found = does_on(box.end(), words, out, results)
    if not found and product.driver == "nvidia":
        plain = subprocess.run(
            steps(*words), capture_output=True, text=True, check=False, env=environment("nvidia")
        )
        out.figures["plain"] = said(plain.stdout) or plain.stderr[-300:]
    return found


def does_on(ran: Run, words: tuple[str, ...], out: Result, results: Results) -> list[Step]:
    """The same of a program that has ended; the verdict says where it stopped."""
    found = said(ran.out)
    out.figures["steps"] = found
    stopped = stopped_at(found, words)
    if stopped:
        results.log(f"{words} said (status {ran.status}):\n{ran.out}")
        out.verdict = f"stops at {stopped}"
    return [] if stopped else found


def nvidia_smi(product: Product, results: Results, out: Result) -> None:
    if product.driver == "sim":
        raise CannotSayError("nvidia-smi is the driver's own")
    with product.container(["nvidia-smi"], memory_mib=CAP_MIB) as box:
        ran = box.end()
    results.log(f"nvidia-smi inside (status {ran.status}):\n{ran.out}")
    out.figures["status"] = ran.status
    out.verdict = "runs" if ran.status == 0 else f"status {ran.status}: {ran.out.strip()[-200:]}"


def cu_init(product: Product, results: Results, out: Result) -> None:
    if does(product, results, out, "init", "count"):
        out.verdict = "cuInit succeeds"


def context(product: Product, results: Results, out: Result) -> None:
    if does(product, results, out, "init", "context", "event", "info", "copy=16", "destroy"):
        out.verdict = "a context works"


def over_the_cap(product: Product, results: Results, out: Result) -> None:
    beyond = f"alloc?={2 * CAP_MIB}"
    found = does(
        product, results, out, "init", "context", "info", "alloc=512", beyond, "alloc=512", "destroy"
    )
    if found:
        shown, refused = found[2]["total_mib"], found[4]["code"]
        held = shown == CAP_MIB and refused == OUT_OF_MEMORY
        out.verdict = "out of memory, and goes on" if held else f"{shown} MiB shown, error {refused}"


def at_once(product: Product, results: Results, out: Result, number: int) -> None:
    """So many programs of CUDA in one container, each with a context and memory while the others have
    theirs."""
    # Each says that it has a context, then all hold it until the last one has come.
    words = (
        "init",
        "context",
        f"alloc={PIECE_MIB}",
        "event",
        f"hold={3 if product.driver == 'nvidia' else 2}",
        "event",
    )
    one = " ".join(f"'{word}'" for word in steps(*words))
    script = f"for i in $(seq {number}); do {one} > /tmp/$i & done; wait; cat /tmp/[0-9]*"
    with product.container(["sh", "-c", script], memory_mib=8 * CAP_MIB) as box:
        ran = box.end(60)
    whole = [line for line in said(ran.out) if line["step"] == words[-1] and not line["code"]]
    failed = [line for line in said(ran.out) if line["code"]]
    out.figures = {
        "programs": number,
        "worked": len(whole) // words.count("event"),
        "failed": failed[:number],
    }
    if failed or out.figures["worked"] != number:
        results.log(f"{number} at once said:\n{ran.out}")
    out.verdict = (
        "all work" if out.figures["worked"] == number else f"{out.figures['worked']} of {number} work"
    )


def two_processes(product: Product, results: Results, out: Result) -> None:
    at_once(product, results, out, TWO)


def nine_processes(product: Product, results: Results, out: Result) -> None:
    at_once(product, results, out, NINE)
