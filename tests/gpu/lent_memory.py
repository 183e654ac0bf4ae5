"""Memory that offline holds and online is granted: it is moved to the host when online asks for it, and comes
back with its data once online has ended.
"""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.gpu import calls, first
from tests.gpu.checkpoints import until
from tests.gpu.product import Container, Product, Run
from tests.gpu.results import Result, Results

PASSES = "moved for online, and back the same"
MOVED_S, HELD_S = 60, 1
# More than a context takes.
CONTEXT_MIB = 1024
LAST_LINES, WATCHER = 30, ("not-watched", "containerd_api")


def lent(product: Product, results: Results, out: Result) -> None:
    """Where it fails, once more with all calls of the offline program written down."""
    try:
        _lent(product, results, out)
    finally:
        if out.verdict != PASSES:
            out.notes = _log(product)
            again = Result("recorded")
            product.until_empty()
            try:
                _lent(product, results, again, recorded=True)
            except Exception as error:
                again.verdict = f"failed: {error}"
            out.figures["recorded"] = {"verdict": again.verdict, **again.figures}


def _lent(product: Product, results: Results, out: Result, *, recorded: bool = False) -> None:
    """Offline fills memory of a card that is granted to online, which takes all of it but half of that."""
    kept_mib = 4096 if product.driver == "nvidia" else 128
    keeps = ("init", "context", f"keep={kept_mib}", f"moved={MOVED_S}", "same", "copy=16", "destroy")
    takes = ("init", "context", "info", f"leave={kept_mib // 2}", "copy=16", f"hold={HELD_S}", "destroy")
    argv = calls.told(first.steps(*keeps)) if recorded else first.steps(*keeps)
    with product.container(
        argv, qos="offline", memory_mib=kept_mib + CONTEXT_MIB, reclaimable=True
    ) as offline:
        began = "".join(offline.line() for _ in keeps[:3])
        if stopped := first.stopped_at(first.said(began), keeps[:3]):
            out.verdict = f"offline stops at {stopped}"
            out.figures["calls"] = Run(0, began + offline.rest().out).document()
            return
        row = _row(product, offline)
        made = calls.Recorded(lambda: Path(f"/proc/{row['pid']}/root{calls.INSIDE}"))
        made.new()
        out.figures["offline_mib"] = sum(card["used_bytes"] for card in row["cards"]) >> 20
        with _noted_each_second(product, results):
            moved = _asked_for(product, offline, takes, out, results)
        if recorded:
            out.figures["failed"] = calls.failed(made.new())
            made.keep(results.folder, "lent")
        if moved:
            ended = time.monotonic()
            with _noted_each_second(product, results):
                until(lambda: _row(product, offline)["reclaim"].get("state") == "running")
            out.figures["back_after_ms"] = round((time.monotonic() - ended) * 1000)
        else:
            # It would wait for more.
            with suppress(ProcessLookupError):
                os.kill(row["pid"], signal.SIGKILL)
        ran = offline.rest()
    steps = first.said(began + ran.out)
    out.figures["offline"] = steps
    same = [step.get("same") for step in steps if step["step"] in ("same", "copy=16")]
    if moved:
        out.verdict = PASSES if same == [True, True] else f"moved for online, and then: {steps[-1:]}"


def _asked_for(
    product: Product, offline: Container, takes: tuple[str, ...], out: Result, results: Results
) -> bool:
    """Whether online got what it asked for, and offline had been moved for it."""
    card_mib = int(product.ask("list")["cards"][0]["memory_mib"])
    with product.container(first.steps(*takes), memory_mib=card_mib) as online:
        began = "".join(online.line() for _ in takes[:4])
        # The driver has room for it before mgpud has written down that offline is away.
        until(lambda: _row(product, offline)["reclaim"].get("state") != "evicting")
        out.figures["while_online_has_it"] = _row(product, offline)["reclaim"]
        out.figures["parked"] = _row(product, online).get("parked")
        _note(product, results, f"online said {began}")
        ran = online.rest()
    _note(product, results, "online has ended")
    asked = Result("online")
    found = first.does_on(Run(ran.status, began + ran.out), takes, asked, results)
    out.figures["online"] = asked.figures["steps"]
    if not found:
        offline_is = _row(product, offline)["reclaim"]
        out.verdict = (
            f"online {asked.verdict}; offline {offline_is.get('state')}: {offline_is.get('not_moved')}"
        )
        return False
    out.figures["online_waited_ms"] = found[3]["ms"]
    state = out.figures["while_online_has_it"].get("state", "gone")
    if state != "evicted":
        out.verdict = f"online has its memory, and offline is {state}"
    return bool(state == "evicted")


@contextmanager
def _noted_each_second(product: Product, results: Results) -> Iterator[None]:
    """What there is meanwhile."""
    over = threading.Event()

    def note() -> None:
        while not over.wait(1):
            _note(product, results, "meanwhile")

    noting = threading.Thread(target=note)
    noting.start()
    try:
        yield
    finally:
        over.set()
        noting.join()


def _note(product: Product, results: Results, what: str) -> None:
    """At once: a stage that is ended at its limit has no figures."""
    told = product.ask("list")
    cards = [(card["granted_mib"], card["demanded_bytes"] >> 20) for card in told["cards"]]
    results.log(f"lent memory: {what}; granted and demanded MiB {cards}")
    for row in told["containers"]:
        held_mib = [card["used_bytes"] >> 20 for card in row["cards"]]
        results.log(f"{row['class']} has {held_mib} MiB, {row['reclaim']}, waits {row['parked']}")


def _row(product: Product, box: Container) -> dict[str, Any]:
    """Of a container as mgpud lists it; empty once it has ended."""
    return next((row for row in product.containers() if row["container_id"] == box.name), {"reclaim": {}})


def _log(product: Product) -> str:
    """Its last lines but those of a watcher that the kit has not."""
    lines = (product.folder / "mgpud.log").read_text().splitlines()
    return "\n".join([line for line in lines if not any(word in line for word in WATCHER)][-LAST_LINES:])
