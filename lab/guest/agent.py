"""In the guest: runs the tests that the laboratory names, one line of JSON each way.

    {"run": "lab.tests.files:polls", "limit_s": 60}  ->  {"run": ..., "failed": null}
    {"attach": N}  ->  {"guest_s": [...]}   N cards are attached and kept, in place of those before; how long
                                            each took
    {"end": true}                                    ->  the guest is switched off
    {"beat": S}: while a test runs, each BEAT_S; S: seconds that the guest is up

The last node is attached first, so that RM's numbers are not the nodes'. Each test has a process of its own:
what it opened goes with it, and one that hangs is killed.
"""

import ctypes
import importlib
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

POWER_OFF = 0x4321FEDC
POLL_S, KILL_S, BEAT_S = 0.02, 10, 5
STACK_LINES = 4


def failure(name: str, limit_s: float, beat: Callable[[], object] = lambda: None) -> str | None:
    """What went wrong with the test, None: nothing. beat: called each BEAT_S meanwhile."""
    report = Path("/run/lab-failure")
    report.unlink(missing_ok=True)
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        os._exit(_run(name, report))
    ended = _status(child, limit_s, beat)
    if ended is None:
        calls = Path(f"/proc/{child}/stack").read_text().split("\n")[:STACK_LINES]
        os.killpg(child, signal.SIGKILL)
        # One that the driver holds does not end.
        _status(child, KILL_S, beat)
        return f"was not done in {limit_s:g} s: {' '.join(calls) or 'in no call'}"
    if report.exists():
        return report.read_text()
    return None if ended == 0 else f"ended with {ended}"


def _run(name: str, report: Path) -> int:
    try:
        module, _, function = name.partition(":")
        getattr(importlib.import_module(module), function)()
    except BaseException:
        traceback.print_exc()
        report.write_text(traceback.format_exc())
        return 1
    return 0


def _status(child: int, limit_s: float, beat: Callable[[], object]) -> int | None:
    """The guest's first process waits for orphans too: until then a container's process has its listener."""
    whom = -1 if os.getpid() == 1 else child
    now = next_beat = time.monotonic()
    until = now + limit_s
    while now < until:
        if now >= next_beat:
            beat()
            next_beat = now + BEAT_S
        pid, status = os.waitpid(whom, os.WNOHANG)
        if pid == child:
            return os.waitstatus_to_exitcode(status)
        if not pid:
            time.sleep(POLL_S)
        now = time.monotonic()
    return None


def _uptime_s() -> float:
    return float(Path("/proc/uptime").read_text().split()[0])


def _attached(count: int, kept: ExitStack) -> list[float]:
    """How long each took. Its files stay open as a persistence daemon and a first program keep theirs: RM and
    nvidia-uvm let go of a card with its last file.
    """
    from lab.tests.nv import Client, Uvm

    kept.close()
    took = []
    for number, minor in enumerate(reversed(range(count))):
        began = time.monotonic()
        client, uvm = Client(card=number, minor=minor), Uvm()
        assert uvm.register_gpu(client.uuid(), client) == 0
        kept.callback(client.close)
        kept.callback(uvm.close)
        took.append(time.monotonic() - began)
    return took


def main(port: str) -> None:
    with open(port, "rb", buffering=0) as asked, open(port, "wb", buffering=0) as answers:

        def say(message: dict[str, Any]) -> None:
            answers.write(json.dumps(message).encode() + b"\n")

        say({"ready": True, "uptime_s": _uptime_s()})
        waiting, kept = b"", ExitStack()
        while True:
            waiting += asked.read(4096)
            *lines, waiting = waiting.split(b"\n")
            for line in filter(None, lines):
                wanted = json.loads(line)
                if "end" in wanted:
                    os.sync()
                    ctypes.CDLL(None).reboot(POWER_OFF)
                elif "attach" in wanted:
                    say({"guest_s": _attached(wanted["attach"], kept)})
                else:
                    failed = failure(wanted["run"], wanted["limit_s"], lambda: say({"beat": _uptime_s()}))
                    say({"run": wanted["run"], "failed": failed})


if __name__ == "__main__":
    main(sys.argv[1])
