"""Programs that submit work, run as `python stream_cases.py CASE` where ioctls reach a card. Prints one JSON
document.

Only ctypes and the public interface. Times are in milliseconds and come from events: they are the card's own.
"""

import ctypes
import itertools
import json
import sys
import threading
import time
from collections.abc import Callable
from ctypes import byref, c_float, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any, TypeAlias

from tests.sim.cuda_program import (
    DISABLE_TIMING,
    MIB,
    NON_BLOCKING,
    NOT_READY,
    NULL,
    PER_THREAD,
    Cuda,
    check,
    longer,
)

Pair: TypeAlias = tuple[c_void_p, c_void_p]


class KernelNode(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS."""

    _fields_ = [("function", c_void_p), ("sizes", c_uint * 7), ("params", c_void_p), ("extra", c_void_p)]


def durations() -> Any:
    """Between events lies what the kernels between them take, also behind a full ring and after it
    wrapped."""
    c = Cuda()
    stream = c.stream()

    def submit() -> tuple[list[c_void_p], int]:
        events = [c.event(stream)]
        for ms in (2.0, 3.5, 0.25):
            c.spin(ms, stream)
            events.append(c.event(stream))
        return events, c.cu.cuEventQuery(events[-1])

    events, queried = c.behind(submit, stream)
    check(c.cu.cuEventSynchronize(events[-1]))
    first = [c.between(a, b) for a, b in itertools.pairwise(events)]

    def many() -> float:
        start = c.event(stream)
        for _ in range(3000):
            c.spin(0.01, stream)
        end = c.event(stream)
        check(c.cu.cuStreamSynchronize(stream))
        return c.between(start, end)

    return {
        "first": first,
        "queried": queried,
        "many": [many() for _ in range(3)],
        "after": c.cu.cuStreamQuery(stream),
    }


def plain_kernels() -> Any:
    """A kernel that is not told how long it takes; a launch that gives its parameters packed."""
    c = Cuda()
    plain = c.function("plain")
    packed = (c_uint64 * 2)(4_000_000, 0)
    size = c_size_t(16)
    extra = (c_void_p * 5)(1, ctypes.addressof(packed), 2, ctypes.addressof(size), 0)

    def submit() -> list[c_void_p]:
        events = [c.event(NULL)]
        for _ in range(10):
            check(c.launch(5, NULL, plain))
        events.append(c.event(NULL))
        check(c.cu.cuLaunchKernel(c.spin_function, 1, 1, 1, 1, 1, 1, 0, None, None, extra))
        events.append(c.event(NULL))
        return events

    events = c.behind(submit)
    c.sync()
    return [c.between(a, b) for a, b in itertools.pairwise(events)]


def full_ring() -> Any:
    """How long it takes to launch 1000 kernels behind a long one and then 200 more, in parts of that one's
    time.
    """
    c = Cuda()
    stream, other = c.stream(NON_BLOCKING), c.stream(NON_BLOCKING)
    c.spin(0.001, stream)
    c.spin(0.001, other)
    c.sync()

    def attempt(ms: float) -> dict[str, float]:
        began = time.monotonic()
        c.spin(ms, stream)
        for _ in range(1000):
            c.spin(0.001, stream)
        queued = time.monotonic()
        waits: list[float] = []

        def elsewhere() -> None:
            """While the first thread waits for room, another stream's launches do not."""
            time.sleep(0.05)
            c.current()
            before = time.monotonic()
            c.spin(0.001, other)
            waits.append(time.monotonic() - before)

        thread = threading.Thread(target=elsewhere)
        thread.start()
        for _ in range(200):
            c.spin(0.001, stream)
        full = time.monotonic()
        thread.join()
        c.sync()
        seen = {"queued": queued - began, "full": full - began, "elsewhere": waits[0]}
        return {name: seconds / ms * 1000 for name, seconds in seen.items()}

    return longer(
        attempt, lambda seen: seen["queued"] < 0.5 and seen["elsewhere"] < 0.5 and seen["full"] < 2, ms=500
    )


def streams() -> Any:
    """Order between streams: by an event, by the legacy stream, and none for those that do not block."""
    c = Cuda()
    first, second, free = c.stream(), c.stream(), c.stream(NON_BLOCKING)

    def submit() -> tuple[c_void_p, c_void_p]:
        a = c.event(first)
        check(c.cu.cuStreamWaitEvent(second, a, 0))
        c.spin(1, second)
        return a, c.event(second)

    a, b = c.behind(submit, first)
    c.sync()
    by_event = c.between(a, b)

    def attempt(ms: float) -> dict[str, Any]:
        for _ in range(50):  # the program is slower than the card at times
            c.spin(ms / 50, first)
        a = c.event(first)
        c.spin(1)
        legacy = c.event(NULL)
        c.spin(1, second)
        b = c.event(second)
        c.spin(1, free)
        unordered = c.event(free)
        idle_too_early = c.cu.cuStreamQuery(NULL)
        check(c.cu.cuStreamSynchronize(NULL))
        check(c.cu.cuStreamSynchronize(second))
        check(c.cu.cuStreamSynchronize(free))
        return {
            "first_to_legacy": c.between(a, legacy),
            "legacy_to_second": c.between(legacy, b),
            "unordered_before_legacy": c.between(unordered, legacy),
            "busy": idle_too_early,
        }

    seen = longer(
        attempt, lambda seen: seen["busy"] == NOT_READY and seen["unordered_before_legacy"] > 0, ms=50
    )
    return {"by_event": by_event, **seen}


def many_streams() -> Any:
    """More streams than a group has channels, each of them in order; all they hold is waited for."""
    c = Cuda()
    made = [c.stream(NON_BLOCKING) for _ in range(20)]
    pairs = []
    for _ in range(3):
        for stream in made:
            start = c.event(stream)
            c.spin(0.2, stream)
            pairs.append((start, c.event(stream)))
    c.sync()
    return [min(c.between(*pair) for pair in pairs), len({stream.value for stream in made})]


def events_again() -> Any:
    """An event that is recorded anew while its last record is under way, in another stream that is done
    first.
    """
    c = Cuda()
    slow, quick, third = (c.stream(NON_BLOCKING) for _ in range(3))
    event = c.event()
    unrecorded = [c.cu.cuEventQuery(event), c.cu.cuStreamWaitEvent(quick, event, 0)]
    check(c.cu.cuEventDestroy_v2(event))

    def attempt(ms: float) -> dict[str, Any]:
        event = c.event()
        c.spin(ms, slow)
        check(c.cu.cuEventRecord(event, slow))
        check(c.cu.cuStreamWaitEvent(quick, event, 0))
        c.spin(1, quick)
        waiting = c.event(quick)
        check(c.cu.cuEventRecord(event, third))
        check(c.cu.cuEventSynchronize(event))
        states = [c.cu.cuEventQuery(event), c.cu.cuEventQuery(waiting)]
        check(c.cu.cuEventDestroy_v2(event))
        c.sync()
        return {"states": states, "destroyed": c.cu.cuEventQuery(event), "waiting": waiting}

    seen = longer(attempt, lambda seen: seen["states"][1] == NOT_READY)
    waiting = seen.pop("waiting")
    for _ in range(5000):
        check(c.cu.cuEventRecord(waiting, quick))
    c.sync()
    return {"unrecorded": unrecorded, **seen}


def contexts() -> Any:
    """Two contexts on one card and one on another, and an event of one that the others wait for."""
    one, two, far = Cuda(0), Cuda(0), Cuda(1)
    one.current()
    stream = one.stream()
    foreign: list[int] = []

    def attempt(ms: float) -> list[float]:
        one.current()
        one.spin(ms, stream)
        done = one.event(stream)
        ends = []
        for c in (two, far):
            c.current()
            mine = c.stream()
            foreign.append(c.launch(1, stream))
            check(c.cu.cuStreamWaitEvent(mine, done, 0))
            c.spin(1, mine)
            ends.append((c, c.event(mine)))
        for c, end in ends:
            c.current()
            c.sync()
            check(c.cu.cuEventSynchronize(end))
        return [one.between(done, end) for _, end in ends]

    # Another card sees what one has released when that card's thread gets to it.
    after = longer(attempt, lambda after: max(after) < 2, ms=20)
    return {"foreign": sorted(set(foreign)), "after": after}


def graphs() -> Any:
    c = Cuda()

    def made(count: int, ms: float) -> c_void_p:
        graph, execution, node = c_void_p(), c_void_p(), c_void_p()
        check(c.cu.cuGraphCreate(byref(graph), 0))
        ns, out = c_uint64(int(ms * 1e6)), c_uint64()
        params = (c_void_p * 2)(ctypes.addressof(ns), ctypes.addressof(out))
        kernel = KernelNode(c.spin_function, (1, 1, 1, 1, 1, 1, 0), ctypes.addressof(params), None)
        for _ in range(count):
            before = (c_void_p * 1)(node.value)
            check(
                c.cu.cuGraphAddKernelNode(
                    byref(node), graph, before, c_size_t(int(bool(node.value))), byref(kernel)
                )
            )
        check(c.cu.cuGraphInstantiateWithFlags(byref(execution), graph, c_uint64(0)))
        check(c.cu.cuGraphDestroy(graph))
        return execution

    def length(execution: c_void_p, submitted: Callable[[Callable[[], Pair]], Pair]) -> float:
        def submit() -> Pair:
            start = c.event(NULL)
            for _ in range(2):
                check(c.cu.cuGraphLaunch(execution, None))
            return start, c.event(NULL)

        start, end = submitted(submit)
        c.sync()
        return c.between(start, end)

    short, long = made(100, 0.1), made(20000, 0.001)
    # The longer one does not go into the ring as a whole.
    lengths = [length(short, c.behind), *sorted(length(long, lambda submit: submit()) for _ in range(3))]
    for execution in (short, long):
        check(c.cu.cuGraphExecDestroy(execution))
    return {"lengths": lengths, "gone": c.cu.cuGraphLaunch(long, None)}


def copies() -> Any:
    """A copy over the bus takes its time beside a kernel, and after one of its own stream; none past the
    memory.
    """
    c = Cuda()
    copying, computing = c.stream(NON_BLOCKING), c.stream(NON_BLOCKING)
    size = 256 * MIB
    memory, host = c.memory(size), c.pinned(size)
    check(c.cu.cuMemcpyHtoDAsync_v2(memory, host, c_size_t(1), copying))

    def beside_a_kernel() -> list[c_void_p]:
        start = c.event(computing)
        check(c.cu.cuStreamWaitEvent(copying, start, 0))
        check(c.cu.cuMemcpyHtoDAsync_v2(memory, host, c_size_t(size), copying))
        copied = c.event(copying)
        c.spin(20, computing)
        return [start, copied, c.event(computing)]

    def in_order() -> list[c_void_p]:
        start = c.event(copying)
        c.spin(5, copying)
        check(c.cu.cuMemcpyDtoHAsync_v2(host, memory, c_size_t(size), copying))
        c.spin(5, copying)
        return [start, c.event(copying)]

    def on_card() -> list[c_void_p]:
        events = [c.event(NULL)]
        check(c.cu.cuMemsetD32_v2(memory, 0, c_size_t(size // 4)))
        events.append(c.event(NULL))
        check(c.cu.cuMemcpyDtoD_v2(memory, c_uint64(memory.value + size // 2), c_size_t(size // 2)))
        return [*events, c.event(NULL)]

    beside = c.behind(beside_a_kernel, computing)
    c.sync()
    order = c.behind(in_order, copying)
    c.sync()
    began = time.monotonic()
    check(c.cu.cuMemcpyHtoD_v2(memory, host, c_size_t(size)))
    synchronous = time.monotonic() - began
    own = c.behind(on_card)
    c.sync()
    return {
        "alone": c.between(*beside[:2]),
        "beside": c.between(beside[0], beside[2]),
        "in_order": c.between(*order),
        "synchronous": synchronous * 1000,
        "on_card": [c.between(a, b) for a, b in itertools.pairwise(own)],
        "outside": c.cu.cuMemcpyHtoD_v2(memory, host, c_size_t(size + 1)),
    }


def mistakes() -> Any:
    c = Cuda()
    stream, event, elapsed, found = c.stream(), c.event(), c_float(), c_void_p()
    untimed = c.event(NULL, DISABLE_TIMING)
    c.sync()
    results = {
        "unknown_function": c.cu.cuModuleGetFunction(byref(found), c.module, b"mgpu"),
        "no_image": c.cu.cuModuleLoadData(byref(found), b"no kernel at all"),
        "unrecorded": c.cu.cuEventElapsedTime(byref(elapsed), event, event),
        "untimed": c.cu.cuEventElapsedTime(byref(elapsed), untimed, untimed),
        "no_threads": c.cu.cuLaunchKernel(c.spin_function, 1, 1, 1, 0, 1, 1, 0, None, None, None),
        "too_many_threads": c.cu.cuLaunchKernel(c.spin_function, 1, 1, 1, 1024, 2, 1, 0, None, None, None),
        "no_duration": c.cu.cuLaunchKernel(c.spin_function, 1, 1, 1, 1, 1, 1, 0, None, None, None),
        "legacy_destroyed": c.cu.cuStreamDestroy_v2(c_void_p(1)),
    }
    check(c.cu.cuStreamDestroy_v2(stream))
    results["stale_stream"] = c.launch(1, stream)
    check(c.cu.cuModuleUnload(c.module))
    results["stale_function"] = c.launch(1)
    check(c.cu.cuCtxDestroy_v2(c.context))
    results["stale_event"] = c.cu.cuEventQuery(event)
    results["no_context"] = c.cu.cuCtxSynchronize()
    return results


def attributes() -> Any:
    c = Cuda()
    least, greatest, flags, priority = c_int(), c_int(), c_uint(), c_int()
    stream, context, threads = c_void_p(), c_void_p(), c_int()
    check(c.cu.cuCtxGetStreamPriorityRange(byref(least), byref(greatest)))
    check(c.cu.cuStreamCreateWithPriority(byref(stream), NON_BLOCKING, -100))
    check(c.cu.cuStreamGetFlags(stream, byref(flags)))
    check(c.cu.cuStreamGetPriority(stream, byref(priority)))
    check(c.cu.cuStreamGetCtx(stream, byref(context)))
    check(c.cu.cuFuncGetAttribute(byref(threads), 0, c.spin_function))
    return [
        priority.value == greatest.value < least.value,
        flags.value,
        context.value == c.context.value,
        threads.value,
    ]


def per_thread() -> Any:
    """A thread's own default stream is in order with the legacy one and with no other thread's."""
    c = Cuda()
    function, status = c_void_p(), c_int()
    check(c.cu.cuGetProcAddress_v2(b"cuLaunchKernel", byref(function), 13000, c_uint64(2), byref(status)))
    own = ctypes.cast(c.cu.cuLaunchKernel_ptsz, c_void_p).value

    def attempt(ms: float) -> dict[str, Any]:
        seen: list[int] = []
        ns = c_uint64(int(ms * 1e6))
        params = (c_void_p * 1)(ctypes.addressof(ns))

        def work() -> None:
            c.current()
            check(c.cu.cuLaunchKernel_ptsz(c.spin_function, 1, 1, 1, 1, 1, 1, 0, None, params, None))
            seen.append(c.cu.cuStreamQuery_ptsz(None))
            check(c.cu.cuStreamSynchronize(PER_THREAD))

        thread = threading.Thread(target=work)
        thread.start()
        idle = c.cu.cuStreamQuery(PER_THREAD)
        thread.join()
        return {"busy": seen, "idle": idle}

    seen = longer(attempt, lambda seen: seen["busy"] == [NOT_READY], ms=30)
    return {**seen, "found": function.value == own}


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]]()))
