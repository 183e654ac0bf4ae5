"""Memory that no ledger of mgpud's has, judged by RM's own account of the card."""

from __future__ import annotations

import itertools
import threading
import time

from lab.claims import decides
from lab.guest import boxes
from lab.tests.nv import Client
from lab.tests.under_mgpu import LIMIT_S, PATIENCE_S, until
from tests.gpu.backend import PROGRAMS
from tests.gpu.product import Container, Product

LOOK_S = 0.2
# On a card it is a second, and ten for what the driver counts for no process.
OVER_MAX_S = 60.0
# Words of tests/programs/hostile/composed.c.
CALLS, RACES, PASSINGS, SEED = ("client", "heap", "memory"), ("to-and-fro",), ("itself", "thread"), "1"


@decides(long=True, limit_s=LIMIT_S)
def composed_attacks_are_paid_for() -> None:
    """The card has nothing beside the ledger for long, whatever call is changed, and by whom."""
    product, outside = boxes.product(), Client()
    for words in itertools.product(CALLS, RACES, PASSINGS):
        attack(product, outside, words)


def attack(product: Product, outside: Client, words: tuple[str, ...]) -> None:
    before = outside.free_bytes()
    with product.container([str(PROGRAMS / "composed"), *words, SEED], memory_mib=1024) as box:
        longest_s = beside_the_ledger_s(product, outside, box, before)
    print(f"{words}: {longest_s:.1f} s beside the ledger, status {box.process.returncode}")
    assert longest_s < OVER_MAX_S, (words, longest_s)
    until(lambda: outside.free_bytes() == before, f"{words}: RM has memory of an ended container")


def beside_the_ledger_s(product: Product, outside: Client, box: Container, before: int) -> float:
    """How long RM has had more than mgpud, until the program has done or is ended."""
    since = longest_s = 0.0
    done = threading.Event()

    def hear() -> None:
        while (line := box.line()) and not line.startswith(("done", "bad")):
            pass
        done.set()

    threading.Thread(target=hear, daemon=True).start()
    began = time.monotonic()
    while box.process.poll() is None and not (done.is_set() and not since):
        assert time.monotonic() - began < PATIENCE_S + OVER_MAX_S, "neither done nor ended"
        # What is made is in the ledger first, so that is read last.
        taken = before - outside.free_bytes()
        used = sum(int(each["cards"][0]["used_bytes"]) for each in product.ask("list")["containers"])
        since = (since or time.monotonic()) if taken > used else 0.0
        longest_s = max(longest_s, time.monotonic() - since if since else 0.0)
        time.sleep(LOOK_S)
    return longest_s
