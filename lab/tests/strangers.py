"""Memory that no ledger of mgpud's has, judged by RM's own account of the card."""

import ctypes
import itertools
import os
import struct
import threading
import time

from lab.claims import decides
from lab.guest import boxes, served
from lab.tests.nv import DEVICE, MIB, Client, in_child
from lab.tests.under_mgpu import LIMIT_S, PATIENCE_S, free_at_rest, until, until_free
from tests.gpu import rm
from tests.gpu.backend import PROGRAMS
from tests.gpu.product import Container, Product

PIDFD_GETFD = 438
HELD = 512 * MIB
# Two looks: a second each on a card's machine, and 50 times what they take.
ENDED_MAX_S = 30.0
LOOK_S = 0.2
# On a card it is a second, and ten for what the driver counts for no process.
OVER_MAX_S = 60.0
# Words of tests/programs/hostile/composed.c.
CALLS, RACES, PASSINGS, SEED = ("client", "heap", "memory"), ("to-and-fro",), ("itself", "thread"), "1"


def control_file_of(pid: int) -> int:
    """A process's open nvidiactl, as one may have it that was sent it."""
    for name in os.listdir(f"/proc/{pid}/fd"):
        if os.readlink(f"/proc/{pid}/fd/{name}").endswith("/nvidiactl"):
            taken = ctypes.CDLL(None).syscall(PIDFD_GETFD, os.pidfd_open(pid), int(name), 0)
            assert taken >= 0
            return int(taken)
    raise AssertionError(f"process {pid} has no nvidiactl")


def with_a_subdevice(ctl: int) -> None:
    Client(ctl=ctl).memory(HELD)


def with_a_device_alone(ctl: int) -> None:
    client = Client(attach=False, ctl=ctl)
    client.card = rm.node("nvidia0")
    client.must_alloc(client.root, rm.DEVICE, struct.pack("<II", 0, client.root).ljust(56, b"\0"), DEVICE)
    client.memory(HELD)


def by_one_who_dies(ctl: int) -> None:
    in_child(lambda: with_a_subdevice(ctl))


@decides(long=True, limit_s=LIMIT_S)
def containers_pay_for_their_files() -> None:
    """A process of no grant that has a container's file takes memory by it: nothing but RM sees that call."""
    product, outside = boxes.product(), Client()
    before = free_at_rest(product, outside)
    for strange in (with_a_subdevice, with_a_device_alone, by_one_who_dies):
        with product.container(boxes.inside("beat", "64"), memory_mib=256) as box:
            boxes.told(box)
            [pid] = boxes.pids(box)
            ctl = control_file_of(pid)
            strange(ctl)
            began = time.monotonic()
            assert before - outside.free_bytes() >= HELD
            until(lambda: box.process.poll() is not None, f"it goes on; {served.LOG.read_text()[-600:]}")
            print(f"{strange.__name__}: ended after {time.monotonic() - began:.1f} s")
            assert time.monotonic() - began < ENDED_MAX_S
        os.close(ctl)
        until_free(outside, before)


@decides(long=True, limit_s=LIMIT_S)
def composed_attacks_are_paid_for() -> None:
    """The card has nothing beside the ledger for long, whatever call is changed, and by whom."""
    product, outside = boxes.product(), Client()
    for words in itertools.product(CALLS, RACES, PASSINGS):
        attack(product, outside, words)


def attack(product: Product, outside: Client, words: tuple[str, ...]) -> None:
    before = free_at_rest(product, outside)
    with product.container([str(PROGRAMS / "composed"), *words, SEED], memory_mib=1024) as box:
        longest_s = beside_the_ledger_s(product, outside, box, before)
    print(f"{words}: {longest_s:.1f} s beside the ledger, status {box.process.returncode}")
    assert longest_s < OVER_MAX_S, (words, longest_s)
    until(lambda: outside.free_bytes() >= before, f"{words}: RM has memory of an ended container")


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
