"""Channel groups: how many a context has, one with a channel that nvidia-uvm does not know, and one that is
alone.
"""

import struct
import time
from collections import Counter
from collections.abc import Sequence

from tests.gpu import rm
from tests.gpu.backend import Backend
from tests.gpu.experiments import BACK_TO_BACK, finish, paced
from tests.gpu.first import said, steps
from tests.gpu.results import Result, Results
from tests.gpu.supervise import Made, Supervised
from tests.gpu.tenants import Target, working

# Handles of ours in another's client: above those that libcuda counts up.
MEMORY_HANDLE, CHANNEL_HANDLE = 0xCAFEA000, 0xCAFEA001
USERD_AT, USERD_OFFSET_AT = 0x20, 0x40
# Calls of GPFIFO_SCHEDULE that a suspend may take where the other means is not there: as many groups.
SCHEDULE_CALLS = 16
SLICE_US = 1


def made_by(backend: Backend, results: Results, words: Sequence[str]) -> tuple[Counter[str], Counter[str]]:
    """(groups, channels) that a program with these steps makes, by engine."""
    with Supervised(backend, steps(*words)) as program:
        text = program.output(20)
        results.log(f"{words} said:\n{text}")
        found = [
            Counter(hex(one.engine) for one in program.by_class(*classes))
            for classes in ((rm.GROUP,), rm.CHANNELS)
        ]
    if not said(text) or said(text)[-1]["code"]:
        raise rm.RmError(f"{' '.join(words)}: {text.strip()[-200:]}", 0)
    return found[0], found[1]


def count(backend: Backend, results: Results, out: Result) -> None:
    """What a second context of a program adds is what a context has."""
    one = made_by(backend, results, ("init", "context", "alloc=16", "event"))
    two = made_by(backend, results, ("init", "context", "alloc=16", "event", "context", "alloc=16", "event"))
    groups, channels = two[0] - one[0], two[1] - one[1]
    out.figures = {
        "first": {"groups": dict(one[0]), "channels": dict(one[1])},
        "each": {"groups": dict(groups), "channels": dict(channels)},
        # A program that has one context, which is most of them.
        "programs_by_schedule": SCHEDULE_CALLS // max(1, one[0].total()),
    }
    out.verdict = f"{one[0].total()} groups and {one[1].total()} channels"


def unregistered(backend: Backend, results: Results, out: Result) -> None:
    """A channel like one of a running program's own, in its group, which its file of nvidia-uvm never hears
    of.
    """
    with working(backend, *BACK_TO_BACK) as (load, target):
        channel = _graphics_channel(target) if target else None
        if not target or not channel:
            out.verdict = "no handles"
            return
        made = add_channel(target, channel)
        out.figures["made"] = {name: hex(status) for name, status in made.items()}
        for means in ("schedule", "disable"):
            out.figures[means] = [hex(target.run(means, on)[0]) for on in (False, True)]
        free(target, CHANNEL_HANDLE)
        free(target, MEMORY_HANDLE)
        out.figures["with_a_stale_handle"] = [hex(with_stale(target, off)) for off in (True, False)]
        target.disable(True)
        out.figures["schedule_without_it"] = [hex(target.run("schedule", on)[0]) for on in (False, True)]
        finish(load, out, "load")
    if any(made.values()):
        out.verdict = "not made"
    elif out.figures["disable"] == ["0x0", "0x0"]:
        refused = out.figures["schedule"][0] != "0x0"
        out.verdict = "disabled" + (
            ", SCHEDULE refuses the group" if refused else ", and SCHEDULE takes it too"
        )
    else:
        out.verdict = "cannot be disabled"


def _graphics_channel(target: Target) -> Made | None:
    groups = {one.handle for one in target.groups if one.engine == rm.GRAPHICS}
    return next((one for one in target.channels if one.parent in groups), None)


def add_channel(target: Target, like: Made) -> dict[str, int]:
    """Statuses of a memory for its USERD, made as that of the other was, and of the channel."""
    memory = next(
        one for one in target.program.by_class(rm.MEMORY, rm.MEMORY_HOST)
        if (one.client, one.handle) == (like.client, like.userd)
    )  # fmt: skip
    params = bytearray(like.params)
    struct.pack_into("<I", params, USERD_AT, MEMORY_HANDLE)
    struct.pack_into("<Q", params, USERD_OFFSET_AT, 0)
    return {
        "memory": alloc(target, memory.parent, MEMORY_HANDLE, memory.class_id, memory.params),
        "channel": alloc(target, like.parent, CHANNEL_HANDLE, like.class_id, bytes(params)),
    }


def alloc(target: Target, parent: int, handle: int, class_id: int, params: bytes) -> int:
    """RM's status, or a negative errno."""
    call = rm.alloc(target.client, parent, handle, class_id, params)
    error = target.program.backend.on_file(target.program.file_of(target.client), call)
    return -error if error else call.u32(0x28)


def free(target: Target, handle: int) -> int:
    outer = struct.pack("<IIII", target.client, target.client, handle, 0)
    call = rm.Call(rm.FREE, bytearray(outer), bytearray(), -1)
    error = target.program.backend.on_file(target.program.file_of(target.client), call)
    return -error if error else call.u32(0xC)


def with_stale(target: Target, off: bool) -> int:
    """DISABLE_CHANNELS of a channel that has ended, and then of those that live."""
    handles = [CHANNEL_HANDLE, *(one.handle for one in target.channels)]
    params = rm.disable(target.client, handles, off)
    return target.control(target.subdevice, rm.DISABLE_CHANNELS, params)[0]


def lone_slice(backend: Backend, results: Results, out: Result) -> None:
    """The same program with the driver's own timeslice and with 1 us, with no other beside it."""
    with working(backend, *BACK_TO_BACK) as (load, target):
        if not target:
            out.verdict = "no handles"
            return
        windows = []
        for name in ("default", "short", "short", "default"):
            if name == "short":
                out.figures["set_status"] = hex(target.set_timeslice(SLICE_US))
            else:
                _as_it_was(target)
            begin = time.monotonic_ns()
            time.sleep(paced(backend, 2))
            windows.append((name, begin, time.monotonic_ns()))
        finish(load, out, "load")
        done = [at for _, at in load.requests()]
    rate = {
        name: sum(
            sum(begin <= at < end for at in done) / (end - begin) for of, begin, end in windows if of == name
        )
        for name in ("default", "short")
    }
    if not rate["default"]:
        out.verdict = "nothing ran"
        return
    out.figures["kept"] = round(rate["short"] / rate["default"], 4)
    out.verdict = f"keeps {out.figures['kept']:.0%}"


def _as_it_was(target: Target) -> None:
    """What RM says of a group that was never told, 2 ms."""
    target.set_timeslice(2048)
