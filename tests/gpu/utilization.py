"""The samples of which GPU-Util is made, as RM gives them to a client that may see all processes."""

import json
import struct
import subprocess
import time
from typing import Any

from tests.gpu import rm
from tests.gpu.backend import Backend
from tests.gpu.calls import recording
from tests.gpu.experiments import SATURATE
from tests.gpu.own_client import SUBDEVICE, OwnClient
from tests.gpu.product import environment
from tests.gpu.results import Result, Results
from tests.gpu.stage import CannotSayError
from tests.gpu.tenants import working
from tests.support.rm_numbers import (
    NV00DE_CTRL_CMD_REQUEST_DATA_POLL,
    NV2080_CTRL_CMD_PERF_GET_GPUMON_PERFMON_UTIL_SAMPLES_V2,
    NV_ERR_NOT_SUPPORTED,
)

# NV2080_CTRL_CMD_PERF_GET_GPUMON_PERFMON_UTIL_SAMPLES_V2: a head of type, bytes, count and tracker, then
# samples.
SAMPLES, KIND, NOBODY = NV2080_CTRL_CMD_PERF_GET_GPUMON_PERFMON_UTIL_SAMPLES_V2, 2, 0xFFFFFFFF
HEAD, RING, ENGINES_AT = struct.Struct("<B3xIII"), 72, 8
# Bytes of all, and of what is said of an engine, by the driver's version: 570, 550, 535.
SHAPES = ((55888, 128), (50704, 116), (34000, 116))
# Of a sample: a time in ns, then the memory's engine and the graphics engine: hundredths of a percent, a
# scale, a pid.
ENGINE = struct.Struct("<III")
# What NVML asks for clocks, use and power draw where RM_USER_SHARED_DATA is not polled; no header names them.
FALLBACKS = {command: hex(command) for command in (0x2080A081, 0x2080A097, 0x2080A613, 0x2080A637)}
UNPOLLED = f"t{NV00DE_CTRL_CMD_REQUEST_DATA_POLL:x}:{NV_ERR_NOT_SUPPORTED:x}"
SHOWN_CHARS = 512


def samples(backend: Backend, results: Results, out: Result) -> None:
    with OwnClient(backend) as own, working(backend, *SATURATE):
        time.sleep(1.5)
        out.figures["statuses"] = statuses = {}
        for size, engine_bytes in SHAPES:
            call = rm.control(
                own.client, SUBDEVICE, SAMPLES, HEAD.pack(KIND, size - HEAD.size, 0, 0).ljust(size, b"\0")
            )
            error = backend.on_file(own.ctl, call)
            statuses[size] = hex(-error if error else call.u32(0x1C))
            if statuses[size] == "0x0":
                out.figures |= decoded(bytes(call.params), engine_bytes)
                break
    shown = out.figures.get("busy_pids") or []
    out.verdict = "names who works" if shown and NOBODY not in shown else f"busy by {shown}"


def decoded(params: bytes, engine_bytes: int) -> dict[str, Any]:
    """The head, how many samples have a time, where the newest is, and who is said to have worked."""
    kind, ring_bytes, count, tracker = HEAD.unpack_from(params)
    size = (len(params) - HEAD.size) // RING
    times: list[int] = []
    busy, idle, scales = set[int](), set[int](), set[int]()
    for i in range(RING):
        at = HEAD.size + i * size
        times.append(struct.unpack_from("<Q", params, at)[0])
        used, scale, pid = ENGINE.unpack_from(params, at + ENGINES_AT + engine_bytes)
        if times[-1]:
            (busy if used else idle).add(pid)
            scales.add(scale)
    newest = max(range(RING), key=lambda i: times[i])
    return {
        "type": kind,
        "ring_bytes": ring_bytes,
        "count": count,
        "tracker": tracker,
        "newest_at": newest,
        "with_a_time": sum(time_ns > 0 for time_ns in times),
        "seconds_old": round((time.time_ns() - times[newest]) / 1e9, 3),
        "busy_pids": sorted(busy),
        "idle_pids": sorted(idle),
        "scales": sorted(scales),
    }


def without_the_page(backend: Backend, results: Results, out: Result) -> None:
    """What nvidia-smi is told natively by the controls that it asks in a share: their layouts can be seen in
    what changes with the work. The whole answers are in OUTDIR.
    """
    if backend.name != "nvidia":
        raise CannotSayError("nvidia-smi is the driver's own")
    out.figures["idle"] = _asked(results, "smi-idle")
    with working(backend, *SATURATE):
        time.sleep(2)
        out.figures["busy"] = _asked(results, "smi-busy")
    changed = [name for name, told in out.figures["busy"].items() if told != out.figures["idle"].get(name)]
    out.verdict = f"changes with the work: {', '.join(changed)}" if changed else "nothing is told"


def _asked(results: Results, name: str) -> dict[str, str]:
    """By the control: what it came back with, in hex, from the first parameter on."""
    folder = results.folder / name
    folder.mkdir(exist_ok=True)
    env = environment("nvidia") | recording(folder) | {"REFUSE": UNPOLLED}
    done = subprocess.run(["nvidia-smi"], capture_output=True, text=True, check=False, env=env)
    results.log(f"{name} (status {done.returncode}):\n{done.stdout}{done.stderr}")
    found = {}
    for line in "".join(file.read_text() for file in folder.glob("*.jsonl")).splitlines():
        row = json.loads(line)
        command = int.from_bytes(bytes.fromhex(str(row.get("i", "")))[8:12], "little")
        if command in FALLBACKS:
            found[FALLBACKS[command]] = str(row.get("q", row.get("p", "")))[:SHOWN_CHARS]
    return found
