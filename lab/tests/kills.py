"""mgpud is killed at each step of a container's life, in a call of the driver; the next one goes on there."""

import os
import signal
import time
from collections.abc import Sequence
from contextlib import suppress

from lab.claims import decides
from lab.guest import boxes, mortal, served
from lab.guest.mortal import RM, Point
from lab.tests.nv import CHANNEL_KIND, Client
from lab.tests.under_mgpu import LIMIT_S, free_at_rest, until, until_free
from oci_specs.refusal import Refusal
from tests.gpu.product import Container, Product
from tests.support import rm_numbers as numbers

ALLOC, CONTROL = RM | numbers.NV_ESC_RM_ALLOC, RM | numbers.NV_ESC_RM_CONTROL
# Twice each: the next mgpud begins anew. Either is the same control.
SUSPENSIONS = [Point("suspension", CONTROL, numbers.NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS)] * 2
RESUMPTIONS = [Point("resumption", CONTROL, numbers.NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS)] * 2
# The next mgpud may have to be loaded first, by an emulated processor.
STEP_S, LIFE_S = 120.0, 1500
MEMORY_MIB, STOPPED_S = 512, 2.0


def beginning(channel_class: int) -> Sequence[Point]:
    """In the order in which lab/guest/copies.py begins."""
    return (
        Point("device", ALLOC, numbers.NV01_DEVICE_0),
        Point("address space", ALLOC, numbers.FERMI_VASPACE_A),
        Point("its registration", numbers.UVM_REGISTER_GPU_VASPACE),
        Point("group", ALLOC, numbers.KEPLER_CHANNEL_GROUP_A),
        Point("memory", ALLOC, numbers.NV01_MEMORY_LOCAL_USER),
        Point("mapping", numbers.UVM_MAP_EXTERNAL_ALLOCATION),
        Point("channel", ALLOC, channel_class),
        Point("its registration", numbers.UVM_REGISTER_CHANNEL),
        Point("start of the group", CONTROL, numbers.NVA06C_CTRL_CMD_GPFIFO_SCHEDULE),
    )


def dies_in(points: Sequence[Point], box: Container) -> None:
    """Until it has died in all of them, which are armed. box: whose calls they are."""
    reached, since = 0, time.monotonic()
    while reached < len(points):
        if box.process.poll() is not None or time.monotonic() - since > STEP_S:
            raise AssertionError(f"{points[reached].name}: no such call; {box.end(1.0)}; {logs()}")
        if (now := mortal.passed()) > reached:
            died = [point.name for point in points[reached:now]]
            print(f"{', '.join(died)}: after {time.monotonic() - since:.1f} s", flush=True)
            reached, since = now, time.monotonic()
        time.sleep(0.1)


def logs() -> str:
    return f"{served.HOLDER_LOG.read_text()[-900:]}; {served.LOG.read_text()[-1500:]}"


def goes_on(box: Container) -> None:
    """With its data. What it said before waits in the pipe."""
    now_s, at_s = time.monotonic(), 0.0
    while at_s < now_s:
        said = boxes.told(box)
        assert said["intact"], said
        at_s = said["at_s"]


def undisturbed_bytes(product: Product) -> int:
    with product.container(boxes.inside("copy"), memory_mib=MEMORY_MIB) as box:
        goes_on(box)
        return boxes.used_bytes(box)


def is_empty(product: Product) -> bool:
    with suppress(Refusal):
        return bool(product.ask("list")["containers"] == [])
    return False


def life(*, after: bool) -> None:
    product, outside = boxes.product(), Client()
    wanted = undisturbed_bytes(product)
    before = free_at_rest(product, outside)
    begin = beginning(outside.class_like(CHANNEL_KIND))
    mortal.arm(begin, after=after)
    with product.container(boxes.inside("copy"), memory_mib=MEMORY_MIB, qos="offline") as offline:
        dies_in(begin, offline)
        goes_on(offline)
        served.wait()
        used, taken = boxes.used_bytes(offline), before - outside.free_bytes()
        print(f"charged {used}, undisturbed {wanted}, taken {taken}", flush=True)
        assert used == wanted >= taken, (used, wanted, taken)
        mortal.arm(SUSPENSIONS, after=after)
        with product.container(boxes.inside("copy"), memory_mib=MEMORY_MIB) as online:
            dies_in(SUSPENSIONS, offline)
            goes_on(online)
            mortal.arm(RESUMPTIONS, after=after)
        dies_in(RESUMPTIONS, offline)
        goes_on(offline)
        served.wait()
        os.kill(boxes.serving(), signal.SIGKILL)
    until(lambda: is_empty(product), "its container goes on")
    assert free_at_rest(product, outside) >= before, "something of it is left"


@decides(long=True, limit_s=LIFE_S)
def before_each_call() -> None:
    life(after=False)


@decides(long=True, limit_s=LIFE_S)
def after_each_call() -> None:
    life(after=True)


@decides(long=True, limit_s=LIMIT_S)
def while_a_container_is_made() -> None:
    """It runs, or is refused in one line; nothing of it is left, and the next one has its memory."""
    product, outside = boxes.product(), Client()
    before = free_at_rest(product, outside)
    for stops in (False, True):
        serving = boxes.serving()
        # One that is stopped takes the runtime's connection, and never answers.
        os.kill(serving, signal.SIGSTOP if stops else signal.SIGKILL)
        with product.container(boxes.inside("fill", "64"), memory_mib=512) as box:
            if stops:
                time.sleep(STOPPED_S)
                os.kill(serving, signal.SIGKILL)
            said = box.line()
            print(f"{'stopped and killed' if stops else 'killed'}: {said.strip()}", flush=True)
            assert '"held_mib": 512' in said or said.startswith("mgpu"), said
        until(lambda: is_empty(product), "something of it is left")
        with product.container(boxes.inside("fill", "64"), memory_mib=512) as box:
            assert boxes.told(box)["held_mib"] == 512
    until_free(outside, before)
