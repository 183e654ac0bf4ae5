"""The driver is asked about a file of nvidia-uvm, and takes its time."""

import ctypes
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from tests.native.nvidia_mediated import Tenant, World
from tests.support.waiting import readable, until


@contextmanager
def asked(here: World) -> Iterator[tuple[Callable[[], object], Callable[[], object]]]:
    """What is asked of a file is not answered before it is said so: waits for a question, answers all."""
    hears, asks = os.pipe()
    answers, answer = os.pipe()
    ctypes.c_int.in_dll(here.lib, "on_card_asked").value = asks
    ctypes.c_int.in_dll(here.lib, "on_card_answers").value = answers

    def heard() -> None:
        until(lambda: readable(hears, 0), "the driver is asked")
        os.read(hears, 1)

    def answer_all() -> None:
        ctypes.c_int.in_dll(here.lib, "on_card_answers").value = -1
        os.write(answer, b"x")

    try:
        yield heard, answer_all
    finally:
        answer_all()
        for fd in (hears, asks, answers, answer):
            os.close(fd)


@contextmanager
def beside(tenant: Tenant) -> Iterator[ThreadPoolExecutor]:
    """A thread that waits for the tenant, which does not outlive what fails."""
    with ThreadPoolExecutor(1) as other:
        try:
            yield other
        except BaseException:
            os.kill(tenant.pid, signal.SIGKILL)
            raise


def has_handled(pid: int, number: signal.Signals) -> bool:
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return not (int(status["SigPnd"], 16) | int(status["ShdPnd"], 16)) >> (number - 1) & 1
