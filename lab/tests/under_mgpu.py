"""mgpu over NVIDIA's driver: what its containers get, beside what RM itself counts."""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from lab.claims import decides
from lab.guest import boxes, served
from lab.guest.inside import PROCESSES
from lab.tests.nv import MIB, Client
from oci_specs.refusal import Refusal
from tests.gpu import rm
from tests.gpu.hostile import ATTEMPTS
from tests.gpu.product import Container, Product
from tests.gpu.product_stages import held
from tests.gpu.results import Results
from tests.support.rm_numbers import NV_ERR_NO_MEMORY

# Where tinygrad's structs begin to be the driver's.
TINYGRAD_SINCE = 550
# In 0.11 and in 0.14.
TINYGRAD_NOT_ON = {"gh100": "tinygrad's NV backend knows no compute class of Hopper's"}
# An emulated processor, and mgpud starts in the first of them.
PATIENCE_S, LIMIT_S = 60, 400
STILL_S = 3.0
# RM takes and gives back so much for itself at times: seen on 535 in two whole runs.
RMS_PAGE = 64 << 10


def until(true: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < end, f"{what}: {left()}"
        time.sleep(0.2)


def left() -> str:
    """What RM and mgpud say of processes and containers."""
    try:
        outside = Client()
        pids = [int(folder.name) for folder in Path("/proc").iterdir() if folder.name.isdecimal()]
        counted = {pid: used for pid in pids if (used := sum(outside.pid_info(pid)))}
        containers = served.ask("list")["containers"]
    except (rm.RmError, Refusal) as error:
        return f"what is left is not known, {error}"
    return f"{outside.free_bytes()} bytes free, by process {counted}, mgpud has {containers}"


def until_free(outside: Client, before: int) -> None:
    """But for a page of RM's own, which no process and no container has."""
    until(lambda: before - outside.free_bytes() <= RMS_PAGE, f"{before} bytes are not free again")


def free_at_rest(product: Product, outside: Client) -> int:
    """What is free once the containers of tests before have gone: RM frees their memory some time after.
    Later more may be, since RM frees pages of its own, too.
    """
    until(lambda: product.ask("list")["containers"] == [], "containers of tests before go on")
    free, since = outside.free_bytes(), time.monotonic()
    while time.monotonic() - since < STILL_S:
        time.sleep(0.2)
        if (now := outside.free_bytes()) != free:
            free, since = now, time.monotonic()
    return free


@decides(long=True, sample=True, limit_s=LIMIT_S)
def memory_ends_at_the_cap() -> None:
    product, outside = boxes.product(), Client()
    before = free_at_rest(product, outside)
    with product.container(boxes.inside("fill", "64"), memory_mib=512) as box:
        said = boxes.told(box)
        assert said == {"held_mib": 512, "status": NV_ERR_NO_MEMORY, "size_mib": 512, "free_mib": 512}, said
        assert boxes.used_bytes(box) == 512 * MIB
        assert before - outside.free_bytes() == 512 * MIB, "RM's own account is the ledger's"
        counted = [sum(outside.pid_info(pid)) for pid in (*boxes.pids(box), *boxes.mgpuds())]
        assert sum(counted) == 512 * MIB, counted
    until_free(outside, before)


@decides(long=True, limit_s=LIMIT_S)
def two_containers_have_a_cap_each() -> None:
    product, outside = boxes.product(), Client()
    before = free_at_rest(product, outside)
    with (
        product.container(boxes.inside("fill", "64"), memory_mib=512) as small,
        product.container(boxes.inside("fill", "64"), memory_mib=768) as large,
    ):
        assert [boxes.told(box)["held_mib"] for box in (small, large)] == [512, 768]
        assert before - outside.free_bytes() == (512 + 768) * MIB
        boxes.kill(small)
        until(lambda: before - outside.free_bytes() == 768 * MIB, "what a killed one had is not free again")
        assert boxes.used_bytes(large) == 768 * MIB


@decides(long=True, limit_s=LIMIT_S)
def processes_of_a_container_share_its_cap() -> None:
    product, outside = boxes.product(), Client()
    before = free_at_rest(product, outside)
    with product.container(boxes.inside("several", "32"), memory_mib=512) as box:
        lines = [boxes.told(box) for _ in range(PROCESSES)]
        [last] = [line for line in lines if "held_mib" in line]
        assert last["status"] == NV_ERR_NO_MEMORY
        assert before - outside.free_bytes() == boxes.used_bytes(box) == 512 * MIB
        assert len(boxes.pids(box)) == PROCESSES


@decides(long=True, limit_s=LIMIT_S)
def second_names_are_given_and_charged_once() -> None:
    """mgpud tells RM of a share as it asks for the duplicate, and takes it back."""
    with boxes.product().container(boxes.inside("names", "64"), memory_mib=256) as box:
        said = boxes.told(box)
        assert said == {"status": 0}, said
        assert boxes.used_bytes(box) == 64 * MIB


def kill_mgpud(box: Container) -> None:
    """The next one has answered, and the container has gone on, when this returns."""
    boxes.told(box)
    first, began = boxes.serving(), time.monotonic()
    os.kill(first, signal.SIGKILL)
    served.wait()
    answered = time.monotonic()
    print(f"killed mgpud: the next one answers after {answered - began:.1f} s")
    until(lambda: boxes.serving() != first, "no other mgpud serves")
    # By time: what it said before waits in the pipe.
    while boxes.told(box)["at_s"] < answered:
        pass


@decides(long=True, sample=True, limit_s=LIMIT_S)
def killed_mgpud_is_followed() -> None:
    """Its containers go on: nothing is charged twice, and nothing forgotten."""
    product, outside = boxes.product(), Client()
    before = free_at_rest(product, outside)
    with product.container(boxes.inside("beat", "64"), memory_mib=256) as box:
        for _ in range(2):
            kill_mgpud(box)
            assert 64 * MIB <= boxes.used_bytes(box) <= 65 * MIB
    until_free(outside, before)
    with product.container(boxes.inside("fill", "64"), memory_mib=512) as box:
        assert boxes.told(box)["held_mib"] == 512


@decides(long=True, limit_s=LIMIT_S)
def run_by_hand() -> None:
    program = "import os; os.close(os.open('/dev/nvidia0', os.O_RDWR)); print('opened')"
    served.start()
    done = subprocess.run(
        ["mgpu", "run", "--memory-mib", "512", "--gpus", "1", "/project/rootfs", "python3", "-c", program],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout.strip()) == (0, "opened"), done.stdout + done.stderr


@decides(long=True, sample=True, limit_s=LIMIT_S, since=TINYGRAD_SINCE, not_on=TINYGRAD_NOT_ON)
def tinygrad_ends_at_the_cap() -> None:
    product, outside = boxes.product(), Client()
    before = free_at_rest(product, outside)
    with product.container(boxes.tinygrad("fill"), memory_mib=1024) as box:
        said = boxes.told(box)
    assert (said["arch"], said["same"], said["after"]) == ("sm_86", True, True), said
    assert 512 <= said["held_mib"] < 1024, said
    until_free(outside, before)


@decides(long=True, limit_s=LIMIT_S, since=TINYGRAD_SINCE, not_on=TINYGRAD_NOT_ON)
def offline_waits_for_online() -> None:
    product = boxes.product()
    with product.container(boxes.tinygrad("copy"), memory_mib=512, qos="offline") as offline:
        for _ in range(3):
            boxes.told(offline)
        with product.container(boxes.tinygrad("copy"), memory_mib=512) as online:
            for _ in range(20):
                boxes.told(online)
            found = boxes.listed(offline)["sched"]
            assert found["preemptions"] > 0, found
            assert found["suspended_ns"] > 0, found


def attempted(*names: str) -> None:
    product, outside = boxes.product(), Client()
    before = free_at_rest(product, outside)
    chosen = [one for one in ATTEMPTS if one.argv[0] in names]
    assert {one.argv[0] for one in chosen} == set(names)
    results = Results(product.folder)
    wrong = {one.name: said for one in chosen if (said := held(product, one, results))}
    assert not wrong, wrong
    until_free(outside, before)


@decides(long=True, limit_s=LIMIT_S)
def calls_changed_by_a_thread_are_held() -> None:
    attempted("flip", "reclass", "dup2_race")


@decides(long=True, limit_s=LIMIT_S)
def calls_of_a_strange_kind_are_held() -> None:
    attempted("greedy", "other_type", "other_ways", "sizes", "foreign_calls", "strangers")


@decides(long=True, limit_s=LIMIT_S)
def memory_by_other_ways_is_held() -> None:
    attempted("tables", "nested", "puppet", "open_close")
