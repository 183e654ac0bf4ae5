"""Work that is pending when something ends, run as `python ending_cases.py CASE`. Prints one JSON
document."""

import json
import os
import sys
import threading
import time
from ctypes import byref, c_size_t, c_uint64, c_void_p
from typing import Any

from tests.sim.cuda_program import NON_BLOCKING, NOT_READY, NULL, Cuda, check, longer


def destroy_pending() -> Any:
    """What ends while it has work: a stream whose kernels go on, and a context whose kernels do not."""
    c = Cuda()

    def attempt(ms: float) -> tuple[float, bool]:
        stream = c.stream()
        c.spin(ms, stream)
        start = c.event(stream)
        c.spin(20, stream)
        end = c.event(stream)
        check(c.cu.cuStreamDestroy_v2(stream))
        in_time = c.cu.cuEventQuery(start) == NOT_READY
        c.sync()
        return c.between(start, end), in_time

    kept, _ = longer(attempt, lambda seen: seen[1], ms=20)
    c.spin(100_000)
    results: list[int] = []

    def wait() -> None:
        c.current()
        results.append(c.cu.cuCtxSynchronize())

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.05)
    began = time.monotonic()
    check(c.cu.cuCtxDestroy_v2(c.context))
    ended = time.monotonic() - began
    thread.join()
    again = Cuda()
    again.spin(1)
    again.sync()
    return {"kept": kept, "waiter": results, "ended": ended, "noticed": time.monotonic() - began}


def foreign_event_ends() -> Any:
    """A context ends whose event others, on its card and on another, were to wait for; and its successors
    begin.
    """
    others = [Cuda(0), Cuda(1)]
    source = Cuda(0)
    source.spin(100_000)
    event = source.event(NULL)
    for other in others:
        other.current()
        check(other.cu.cuStreamWaitEvent(other.stream(), event, 0))
    began = time.monotonic()
    check(source.cu.cuCtxDestroy_v2(source.context))
    for other in others:
        other.current()
        other.sync()
    for _ in range(300):
        again = Cuda(0)
        again.spin(0.001)
        check(again.cu.cuEventSynchronize(again.event(NULL)))
        check(again.cu.cuCtxDestroy_v2(again.context))
    return time.monotonic() - began


def room() -> Any:
    """Work leaves the memory account alone: the card fills to the byte beside it and empties again."""
    c = Cuda()
    free, total, pointer = c_size_t(), c_size_t(), c_uint64()
    c.spin(50)
    c.event(NULL)
    check(c.cu.cuMemGetInfo_v2(byref(free), byref(total)))
    all_of_it = c.memory(free.value)
    refused = c.cu.cuMemAlloc_v2(byref(pointer), c_size_t(1))
    c.spin(1, c.stream())
    c.sync()
    check(c.cu.cuMemFree_v2(all_of_it))
    return [total.value - free.value, refused]


def fork() -> Any:
    """A child starts anew while the parent's kernels run, and leaves them alone."""
    c = Cuda()

    def submit() -> tuple[c_void_p, c_void_p]:
        start = c.event(NULL)
        c.spin(50)
        return start, c.event(NULL)

    start, end = c.behind(submit)
    child = os.fork()
    if child == 0:
        assert c.launch(1) == 3
        mine = Cuda()
        mine.spin(1, mine.stream())
        mine.sync()
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    c.spin(1)
    c.sync()
    return [status, c.between(start, end)]


def lost() -> Any:
    """Says when it waits; the card goes away; what the waits and everything after them answer."""
    c = Cuda()
    stream, event = c.stream(NON_BLOCKING), c.event()
    c.spin(100_000, stream)
    check(c.cu.cuEventRecord(event, stream))
    print("waiting", flush=True)
    results = [c.cu.cuStreamSynchronize(stream), c.cu.cuEventSynchronize(event), c.cu.cuCtxSynchronize()]
    results += [c.launch(1, stream), c.cu.cuEventQuery(event), c.cu.cuStreamQuery(stream)]
    return results


def lost_while_full() -> Any:
    c = Cuda()
    c.spin(100_000)
    print("waiting", flush=True)
    for _ in range(2000):
        if result := c.launch(1):
            return [result]
    return []


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]]()))
