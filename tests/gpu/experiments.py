"""What mgpu assumes of NVIDIA's driver, tried one by one.

Each takes the backend and the results so far and fills a Result. None changes a setting of the card;
timeslices and suspensions are of programs that end with the experiment.
"""

import itertools
import json
import os
import signal
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from oci_specs import paths
from tests.gpu import rm
from tests.gpu.backend import Backend, set_admin
from tests.gpu.first import steps
from tests.gpu.own_client import OwnClient
from tests.gpu.product_stages import between_processes
from tests.gpu.results import Result, Results, quantiles
from tests.gpu.supervise import How, Supervised
from tests.gpu.tenants import Load, Target, latencies_us, working

ONLINE = ("burst", "--period-ms", "20", "--kernels", "1", "--kernel-us", "100")
BACK_TO_BACK = ("burst", "--period-ms", "0", "--kernels", "1", "--kernel-us", "500")
SATURATE = ("saturate", "--kernel-us", "5000")
CAP_MIB = 4309
MIB = 1 << 20
CYCLES = 60
# What was on the engine when the call began is seen to be done until then.
SETTLED_NS = 3_000_000
LONG_S = 6.0


def paced(backend: Backend, amount: float) -> float:
    """Of a simulated card nothing is to be learnt but that the experiment works."""
    return amount if backend.name == "nvidia" else amount / 6


Experiment = Callable[[Backend, Results, Result], None]


def census(backend: Backend, results: Results, out: Result) -> None:
    """Which calls, classes, controls and views libcuda and NVML use, and where USERD lies."""
    before = used_mib(backend)
    with working(backend, *ONLINE) as (load, target):
        time.sleep(0.5)
        own = sum(one.bytes for one in load.by_class(rm.MEMORY)) >> 20
        groups = sum(one.engine == rm.GRAPHICS for one in load.by_class(rm.GROUP))
        # What the driver takes by itself, all of it put down to the graphics engine's groups: mgpud measures
        # it too.
        out.figures["context_mib"] = max(0, used_mib(backend) - before - own) // max(1, groups)
        _note_census(load, "cuda", out, results)
        out.figures["handles_seen_under_continue"] = bool(target)
        for made in load.by_class(*rm.CHANNELS, rm.GROUP):
            results.log(f"made {made}")
        memory = {(one.client, one.handle): one for one in load.by_class(rm.MEMORY, rm.MEMORY_HOST)}
        places = {
            f"{memory[c.client, c.userd].class_id:#x}" if (c.client, c.userd) in memory else "unknown"
            for c in load.by_class(*rm.CHANNELS)
        }
        out.figures["userd_memory_classes"] = sorted(places)
        out.figures["most_clients_on_a_file"] = max(
            (len(found) for found in load.census.clients_by_file.values()), default=0
        )
    for name, argv in backend_tools(backend):
        with Supervised(backend, argv) as tool:
            results.log(f"{name} said:\n{tool.output(15)}")
            _note_census(tool, name, out, results)
    out.verdict = "handles seen" if out.figures["handles_seen_under_continue"] else "handles not seen"


def backend_tools(backend: Backend) -> list[tuple[str, list[str]]]:
    """And programs that have memory of other kinds, each with what it asks besides."""
    words = {
        "managed": ("init", "context", "managed=64", "free", "destroy"),
        "sizes": ("init", "context", "alloc=0.004", "alloc=2", "alloc=1024", "destroy"),
        "sleeping": ("init", "context=4", "event", "destroy"),
    }
    found = [(name, steps(*these)) for name, these in words.items()]
    found.append(("between_processes", between_processes()))
    return [*found, ("nvidia_smi", ["nvidia-smi"])] if backend.name == "nvidia" else found


def _note_census(program: Supervised, name: str, out: Result, results: Results) -> None:
    for what, count in sorted(program.census.seen.items()):
        results.log(f"{name}: {what}: {count}")
    results.log(f"{name}, in the order of the first of each: {list(program.census.seen)}")
    for line in program.census.uvm:
        results.log(f"{name}, nvidia-uvm: {line}")
    for made in program.by_class(rm.MEMORY):
        results.log(f"{name} made {made}")
    kinds = {what.split()[0] for what in program.census.seen}
    out.figures[name] = {
        kind: sorted(what.split(" ", 1)[1] for what in program.census.seen if what.startswith(f"{kind} "))
        for kind in sorted(kinds)
    }
    out.figures[f"{name}_serve_us"] = quantiles(program.census.serve_us)


def timeslice(backend: Backend, results: Results, out: Result) -> None:
    """What a 1 us and a 1 s timeslice do to an online program beside an offline one that saturates."""
    with working(backend, *ONLINE) as (online, its), working(backend, *SATURATE) as (offline, other):
        if not its or not other:
            out.verdict = "no handles"
            return
        for group in its.groups:
            status, params, _ = its.control(group.handle, rm.GET_TIMESLICE, bytes(8))
            out.figures[f"engine_{group.engine:#x}_get"] = [hex(status), struct.unpack("<Q", params)[0]]
        marks = [("default", time.monotonic_ns())]
        time.sleep(paced(backend, 2))
        out.figures["set_offline_1us"] = hex(other.set_timeslice(1))
        out.figures["set_online_1s"] = hex(its.set_timeslice(1_000_000))
        marks.append(("1us_1s", time.monotonic_ns()))
        time.sleep(paced(backend, 2))
        marks.append(("end", time.monotonic_ns()))
        finish(offline, out, "offline")
        finish(online, out, "online")
        for (name, begin), (_, end) in itertools.pairwise(marks):
            out.figures[f"{name}_online_us"] = quantiles(latencies_us(online.requests(), begin, end))
    out.verdict = "measured"


def finish(load: Load, out: Result, name: str) -> dict[str, Any]:
    load.stop()
    said = load.output(10)
    found = {}
    lines = [line for line in said.splitlines() if line.startswith("{")]
    if lines:
        found = json.loads(lines[-1])
    out.figures[name] = found or said[-400:]
    return found


def hard_suspend(means: str) -> Experiment:
    """Whether a group stops when it is told, stays off, and goes on with its work."""

    def experiment(backend: Backend, results: Results, out: Result) -> None:
        off_us, on_us, late, gaps = [], [], 0, []
        with working(backend, *BACK_TO_BACK) as (load, target):
            if not target:
                out.verdict = "no handles"
                return
            out.figures["groups"], out.figures["channels"] = len(target.groups), len(target.channels)
            none = rm.disable(target.client, [], True)
            out.figures["disable_of_none"] = hex(
                target.control(target.subdevice, rm.DISABLE_CHANNELS, none)[0]
            )
            statuses = set()
            for _ in range(int(paced(backend, CYCLES))):
                status, took = target.run(means, False)
                off = time.monotonic_ns()
                statuses.add(hex(status))
                time.sleep(0.01)
                on = time.monotonic_ns()
                status, took_on = target.run(means, True)
                statuses.add(hex(status))
                off_us.append(took)
                on_us.append(took_on)
                gaps.append((off, on))
                time.sleep(0.01)
            target.run(means, False)
            long_off = time.monotonic_ns()
            time.sleep(paced(backend, LONG_S))
            long_on = time.monotonic_ns()
            target.run(means, True)
            time.sleep(0.3)
            said = finish(load, out, "load")
            done = [at for _, at in load.requests()]
            late = sum(any(off + SETTLED_NS < at < on for at in done) for off, on in gaps)
            after = [(at - off) / 1000 for off, on in gaps for at in done if off < at < on]
            resumed = sum(any(on <= at < on + 10_000_000 for at in done) for _, on in gaps)
            out.figures |= {
                "statuses": sorted(statuses),
                "off_call_us": quantiles(off_us),
                "on_call_us": quantiles(on_us),
                "cycles_with_work_while_off": late,
                "done_after_off_us": quantiles(after),
                "cycles_resumed_in_10_ms": resumed,
                "done_in_6_s_off": sum(long_off + SETTLED_NS < at < long_on for at in done),
                "done_after": sum(at >= long_on for at in done),
            }
        stops = late == 0 and not out.figures["done_in_6_s_off"] and statuses == {"0x0"}
        out.figures["off_us"] = quantiles(off_us).get("p50")
        whole = bool(said) and out.figures["done_after"] > 0
        out.verdict = (
            "stops and resumes"
            if stops and whole
            else "stops, does not resume"
            if stops
            else "does not stop cleanly"
        )

    return experiment


def cost(backend: Backend, results: Results, out: Result) -> None:
    """What each scheduling call costs, alone and beside a program that allocates."""
    with working(backend, *ONLINE) as (_, target):
        if not target:
            out.verdict = "no handles"
            return
        _cost_of(target, "quiet", out)
        churn = ("burst", "--period-ms", "0", "--kernels", "1", "--kernel-us", "50")
        with working(backend, *churn):
            _cost_of(target, "beside_work", out)
    out.verdict = "measured"


def _cost_of(target: Target, when: str, out: Result) -> None:
    calls: dict[str, Callable[[int], float]] = {
        "set_timeslice": lambda i: target.control(
            target.groups[0].handle, rm.SET_TIMESLICE, struct.pack("<Q", 2048)
        )[2],
        "get_timeslice": lambda i: target.control(target.groups[0].handle, rm.GET_TIMESLICE, bytes(8))[2],
        "schedule_all": lambda i: target.schedule(bool(i & 1))[1],
        "disable_all": lambda i: target.disable(bool(i & 1))[1],
    }
    for name, call in calls.items():
        end = time.monotonic() + paced(target.program.backend, 1.5)
        took: list[float] = []
        while len(took) < paced(target.program.backend, 1000) and time.monotonic() < end:
            took.append(call(len(took)))
        if len(took) & 1:
            call(1)
        out.figures[f"{when}_{name}_us"] = quantiles(took)


def on_behalf(backend: Backend, results: Results, out: Result) -> None:
    """Whether objects made by us on the program's own file work, and which channels come out privileged."""
    for name, how in (
        ("without_admin", How(behalf=True)),
        ("with_admin", How(behalf=True, keep_admin=True)),
    ):
        with working(backend, *ONLINE, "--seconds", str(paced(backend, 1.2)), how=how) as (load, _):
            said = load.output(15)
            channels = load.by_class(*rm.CHANNELS)
            out.figures[name] = {
                "works": load.process.returncode == 0,
                "channels": len(channels),
                "privileged": sum(bool(one.flags & rm.PRIVILEGED_CHANNEL) for one in channels),
                "failed": dict(load.census.failed),
            }
            if load.process.returncode:
                results.log(f"on behalf, {name}: {said}")
    works = out.figures["without_admin"]["works"]
    out.verdict = "works without CAP_SYS_ADMIN" if works else "fails without CAP_SYS_ADMIN"


def refusal(backend: Backend, results: Results, out: Result) -> None:
    """Whether 0x51 is CUDA's out of memory, and programs go on; what tools show of a cap."""
    load = paths.libexec("mgpu-load")
    how = How(cap_bytes=CAP_MIB * MIB)
    for name, mib in (("within", 512), ("beyond", 8192)):
        with Supervised(backend, [load, "alloc", "--mib", str(mib), "-o", "json"], how) as program:
            said = program.output(20)
            out.figures[name] = said[-400:]
            results.log(f"alloc {mib} MiB under {CAP_MIB}: {said}")
    held = '"code": 0' in out.figures["within"] and '"code": 2' in out.figures["beyond"]
    if backend.name == "nvidia":
        query = [
            "nvidia-smi",
            "--query-gpu=memory.total,memory.used,memory.free",
            "--format=csv,noheader,nounits",
        ]
        with Supervised(backend, query, how) as program:
            out.figures["nvidia_smi"] = program.output(15).strip()
        out.figures["nvidia_smi_shows_cap"] = str(CAP_MIB) in out.figures["nvidia_smi"]
    out.verdict = "refused as out of memory" if held else "not as expected"


def userd(backend: Backend, results: Results, out: Result) -> None:
    """Whether GP_PUT can be read by SHARE, DUP_OBJECT and MAP_MEMORY, and what a look costs."""
    with OwnClient(backend) as own, working(backend, *ONLINE) as (load, target):
        if not target:
            out.verdict = "no handles"
            return
        maps, failed = [], []
        for channel in target.channels:
            try:
                maps.append(own.map_userd(load.file_of(channel.client), channel))
            except (rm.RmError, OSError) as error:
                failed.append(str(error))
        out.figures |= {"mapped": len(maps), "failed": failed}
        changes, looks, last = 0, 0, [one.word(rm.GP_PUT) for one in maps]
        gets, last_get = 0, [one.word(rm.GP_GET) for one in maps]
        begin = time.monotonic_ns()
        while maps and time.monotonic_ns() - begin < 2e9:
            now, got = [one.word(rm.GP_PUT) for one in maps], [one.word(rm.GP_GET) for one in maps]
            changes, gets, looks = changes + (now != last), gets + (got != last_get), looks + 1
            last, last_get = now, got
        out.figures["client_there"] = hex(own.duplicate_client(target.client))
        finish(load, out, "load")
        load.close_files()
        out.figures["client_gone"] = hex(own.duplicate_client(target.client))
        out.figures["mapped_by"] = sorted({one.node for one in maps})
        out.figures |= {"put_changes": changes, "get_changes": gets, "looks": looks}
        out.figures["look_us"] = (time.monotonic_ns() - begin) / 1000 / looks if looks else None
    out.verdict = "GP_PUT seen" if changes else "not seen"


def visibility(backend: Backend, results: Results, out: Result) -> None:
    """Whether engine status names the group that runs."""
    with OwnClient(backend) as own:
        engine_status = own.graphics_status(out.figures)
        out.figures["idle"] = _sampled(engine_status, set(), results)
        with working(backend, *SATURATE) as (_, target):
            numbers = _numbers(target) if target else {}
            out.figures["numbers"] = {hex(engine): number for engine, number in numbers.items()}
            out.figures["saturated"] = _sampled(engine_status, {numbers.get(rm.GRAPHICS, -1)}, results)
    above = out.figures["saturated"]["above"]
    # Firmware may have groups of its own before it, always the same number of them.
    out.verdict = "names the group" if len(above) == 1 and above[0] >= 0 else "does not name it"


def _numbers(target: Target) -> dict[int, int]:
    """RM's number of each group, by the engine that it was made for."""
    found = {}
    for group in target.groups:
        status, params, _ = target.control(group.handle, rm.GROUP_INFO, bytes(4))
        if status == 0:
            (found[group.engine],) = struct.unpack("<I", params)
    return found


def _sampled(word: Callable[[], int], ids: set[int], results: Results) -> dict[str, Any]:
    seen = []
    for _ in range(2000):
        seen.append(word())
        time.sleep(0.0002)
    results.log(f"engine status: {sorted({hex(one) for one in seen})[:40]}, the program's groups: {ids}")
    return {
        "busy_share": sum(one >> 31 for one in seen) / len(seen),
        "above": sorted({(one & 0xFFF) - number for one in seen for number in ids}),
    }


def killed(backend: Backend, results: Results, out: Result) -> None:
    """Whether a suspended program that is killed ends, and when its memory is free."""
    for means in ("schedule", "disable"):
        before = used_mib(backend)
        with working(backend, *SATURATE) as (load, target):
            if not target:
                out.verdict = "no handles"
                return
            running_mib = used_mib(backend)
            target.run(means, False)
            begin = time.monotonic()
            os.kill(_leaf(load.process.pid), signal.SIGKILL)
            load.process.wait(10)
            ended_ms = (time.monotonic() - begin) * 1000
            time.sleep(0.5)
            with_copy = used_mib(backend)
            load.close_files()
            freed_ms = _until_free(backend, before)
            out.figures[means] = {
                "ended_ms": ended_ms,
                "used_mib": [before, running_mib, with_copy, used_mib(backend)],
                "freed_ms": freed_ms,
            }
    out.verdict = (
        "ends and frees"
        if all(one["freed_ms"] is not None for one in out.figures.values())
        else "memory stays"
    )


def _leaf(pid: int) -> int:
    while children := Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        pid = int(children[0])
    return pid


def used_mib(backend: Backend) -> int:
    """Of the card, as no cap changes it."""
    if backend.name == "sim":
        from sim import cards

        folder: Path = backend.folder  # type: ignore[attr-defined]
        return cards.account(folder / "admin.sock").cards[0].used_bytes >> 20
    import pynvml

    pynvml.nvmlInit()
    try:
        return int(pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(0)).used >> 20)
    finally:
        pynvml.nvmlShutdown()


def _until_free(backend: Backend, before: int) -> float | None:
    begin = time.monotonic()
    while time.monotonic() - begin < 5:
        if used_mib(backend) <= before + 8:
            return (time.monotonic() - begin) * 1000
        time.sleep(0.01)
    return None


def managed(backend: Backend, results: Results, out: Result) -> None:
    """Work that copies and computes in turns, suspended for longer than the driver's time-outs."""
    with working(backend, *BACK_TO_BACK) as (load, target):
        if not target:
            out.verdict = "no handles"
            return
        out.figures["engines"] = sorted({hex(one.engine) for one in target.groups})
        statuses = [target.schedule(False, only_graphics=True)[0]]
        time.sleep(paced(backend, LONG_S))
        statuses.append(target.schedule(True, only_graphics=True)[0])
        resumed = time.monotonic_ns()
        time.sleep(0.5)
        finish(load, out, "load")
        after = sum(at >= resumed for _, at in load.requests())
        out.figures |= {"statuses": [hex(one) for one in statuses], "done_after": after}
    out.verdict = "goes on" if after and load.process.returncode == 0 else "does not go on"


def foreign(backend: Backend, results: Results, out: Result) -> None:
    """Whether one program can disable another's channels, or resume itself."""
    with working(backend, *BACK_TO_BACK) as (victim, its), working(backend, *ONLINE) as (_, attacker):
        if not its or not attacker:
            out.verdict = "no handles"
            return
        handles = [one.handle for one in its.channels]
        for name, admin in (("without_admin", False), ("with_admin", True)):
            set_admin(admin)
            params = rm.disable(its.client, handles, True)
            status, _, _ = attacker.control(attacker.subdevice, rm.DISABLE_CHANNELS, params)
            begin = time.monotonic_ns()
            time.sleep(0.1)
            end = time.monotonic_ns()
            attacker.control(attacker.subdevice, rm.DISABLE_CHANNELS, rm.disable(its.client, handles, False))
            set_admin(True)
            its.disable(True)
            its.schedule(True)
            out.figures[name] = {"status": hex(status), "window": [begin, end]}
            time.sleep(0.1)
        call = rm.control(its.client, its.groups[0].handle, rm.SCHEDULE, bytes(3))
        error = backend.on_file(attacker.program.file_of(attacker.client), call)
        out.figures["schedule_by_another_file"] = hex(-error if error else call.u32(0x1C))
        finish(victim, out, "victim")
        done = [at for _, at in victim.requests()]
        stopped = False
        for name in ("without_admin", "with_admin"):
            begin, end = out.figures[name].pop("window")
            ran = any(begin + 1_000_000 < at < end for at in done)
            out.figures[name]["victim_ran_on"] = ran
            stopped |= not ran
    out.verdict = "another's channels can be stopped" if stopped else "another's handles are refused"
