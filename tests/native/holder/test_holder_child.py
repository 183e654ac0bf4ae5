"""The holder starts the mgpud and starts it again, where no systemd does."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from threading import Thread

import pytest

from oci_specs import paths
from tests.support.commands import Done, attempt
from tests.support.holder import Holder, Mgpud, holding, mgpud_argv
from tests.support.waiting import until

WATCHDOG_MS = 2500


def words(folder: Path) -> list[dict[str, object]]:
    """What mgpuds have said so far."""
    log = folder / "mgpud.log"
    lines = log.read_text().splitlines() if log.exists() else []
    return [json.loads(line) for line in lines if line.startswith("{")]


def served(folder: Path) -> list[int]:
    """Pids of the mgpuds that began to serve, in that order."""
    return [int(str(said["pid"])) for said in words(folder) if "all" in said]


def containers(folder: Path, pid: int) -> set[object]:
    return {said["container"] for said in words(folder) if said["pid"] == pid and "container" in said}


def alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def serving(holder: Holder, count: int) -> int:
    """The pid of the mgpud that is the count-th to serve."""
    until(lambda: len(served(holder.folder)) >= count, f"{count} mgpuds served", timeout_s=30)
    return served(holder.folder)[count - 1]


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[Holder]:
    argv = mgpud_argv(tmp_path, "--beat")
    with holding(tmp_path, "--watchdog-ms", str(WATCHDOG_MS), mgpud=argv) as running:
        yield running


def test_killed_mgpud_is_restarted_with_every_listener(holder: Holder) -> None:
    for number in range(4):
        os.kill(serving(holder, number + 1), signal.SIGKILL)
        holder.arrives(f"c{number}")
    last = serving(holder, 5)
    until(lambda: containers(holder.folder, last) == {f"c{number}" for number in range(4)}, "it has all")


def test_mgpud_that_is_stopped_is_replaced(holder: Holder) -> None:
    holder.arrives("a")
    first = serving(holder, 1)
    os.kill(first, signal.SIGSTOP)
    assert containers(holder.folder, serving(holder, 2)) == {"a"}
    assert not alive(first)
    assert f"mgpud {first} has sent nothing for" in holder.log()


def test_short_stall_is_no_reason_nor_is_one_of_the_holder_itself(holder: Holder) -> None:
    first = serving(holder, 1)
    os.kill(first, signal.SIGSTOP)
    time.sleep(1)
    os.kill(first, signal.SIGCONT)
    time.sleep(0.2)
    # As when the machine is suspended: the holder wakes up later than the watchdog's time.
    os.kill(first, signal.SIGSTOP)
    holder.process.send_signal(signal.SIGSTOP)
    time.sleep(WATCHDOG_MS / 1000 + 0.5)
    holder.process.send_signal(signal.SIGCONT)
    os.kill(first, signal.SIGCONT)
    time.sleep(0.5)
    assert alive(first)
    assert len(served(holder.folder)) == 1


def test_starved_mgpud_is_not_taken_for_one_that_hangs(tmp_path: Path) -> None:
    """Both are silent. This one is ready to run, and another process has its only processor."""
    argv = mgpud_argv(tmp_path, "--spin")
    with holding(tmp_path, "--watchdog-ms", str(WATCHDOG_MS), mgpud=argv) as holder:
        first, one = serving(holder, 1), {min(os.sched_getaffinity(0))}
        os.sched_setaffinity(first, one)
        os.sched_setscheduler(first, os.SCHED_IDLE, os.sched_param(0))
        with subprocess.Popen(["/bin/sh", "-c", "while :; do :; done"]) as hog:
            os.sched_setaffinity(hog.pid, one)
            os.setpriority(os.PRIO_PROCESS, hog.pid, -20)
            time.sleep(2 * WATCHDOG_MS / 1000)
            starved = alive(first)
            hog.kill()
        assert starved, holder.log()
        # From the hog's end on it may have been found.
        with suppress(ProcessLookupError):
            os.sched_setscheduler(first, os.SCHED_OTHER, os.sched_param(0))
            os.sched_setaffinity(first, os.sched_getaffinity(0))
        until(lambda: not alive(first), "it has time and says nothing: it hangs", timeout_s=30)
    assert f"mgpud {first} has sent nothing for" in holder.log()


def test_new_one_takes_over_on_request(holder: Holder) -> None:
    holder.arrives("a", "b")
    first = serving(holder, 1)
    holder.process.send_signal(signal.SIGUSR1)
    second = serving(holder, 2)
    assert containers(holder.folder, second) == {"a", "b"}
    assert not alive(first)
    os.kill(second, signal.SIGKILL)
    serving(holder, 3)


def test_failed_takeover_leaves_mgpud_serving(tmp_path: Path) -> None:
    broken = tmp_path / "spoilt"
    script = f'[ -e {broken} ] && exit 1; exec "$@"'
    with holding(tmp_path, mgpud=["/bin/sh", "-c", script, "sh", *mgpud_argv(tmp_path, "--beat")]) as holder:
        first = serving(holder, 1)
        broken.touch()
        holder.process.send_signal(signal.SIGUSR1)
        until(lambda: "ended with status 1" in holder.log(), "it has ended")
        holder.arrives("a")
        until(lambda: containers(tmp_path, first) == {"a"}, "the first serves")


def test_mgpud_ends_with_the_holder(tmp_path: Path) -> None:
    with holding(tmp_path, mgpud=mgpud_argv(tmp_path, "--beat")) as holder:
        mgpud = serving(holder, 1)
    assert not alive(mgpud)


def test_mgpud_that_is_deaf_ends_too(tmp_path: Path) -> None:
    script = 'trap "" TERM; exec "$@"'
    with holding(tmp_path, mgpud=["/bin/sh", "-c", script, "sh", *mgpud_argv(tmp_path, "--beat")]) as holder:
        mgpud = serving(holder, 1)
    assert not alive(mgpud)


def holder_with(folder: Path, *mgpud: str) -> Done:
    argv: list[str | Path] = [paths.libexec("mgpu-holder"), "--seccomp-socket", folder / "seccomp.sock"]
    argv += ["--mgpud-socket", folder / "holder.sock", "--", *mgpud]
    return attempt(*argv)


@pytest.mark.parametrize(
    ("mgpud", "status"),
    [(("/bin/sh", "-c", "echo no >&2; exit 1"), 1), (("/bin/false",), 1), (("/nowhere/mgpud",), 127)],
)
def test_first_mgpud_that_refuses_ends_the_holder_with_its_status(
    tmp_path: Path, mgpud: tuple[str, ...], status: int
) -> None:
    done = holder_with(tmp_path, *mgpud)
    assert (done.status, done.out) == (status, "")
    assert f"ended with status {status}" in done.err


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_mgpud_that_the_holder_before_had_begun_may_end_or_hang(tmp_path: Path, number: int) -> None:
    """It connects to the next holder before that one's own, and does not serve yet."""
    late, log = tmp_path / "late", tmp_path / "holder.log"

    def once(there: str, *flags: str) -> list[str]:
        script = f'until [ {there} ]; do sleep 0.02; done; exec "$@"'
        return ["/bin/sh", "-c", script, "sh", *mgpud_argv(tmp_path, *flags)]

    early = once(f"-S {tmp_path / 'holder.sock'}")
    with subprocess.Popen(early, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:

        def go() -> None:
            Mgpud(process).start()
            late.touch()
            until(lambda: "ended with status 1" in log.read_text(), "the holder's own is refused")
            process.send_signal(number)

        going = Thread(target=go)
        going.start()
        # It has six times that until it serves.
        with holding(tmp_path, "--watchdog-ms", "1000", mgpud=once(f"-e {late}", "--beat")) as holder:
            going.join()
            serving(holder, 1)
            assert not alive(process.pid)


def test_restarts_are_delayed_after_repeated_deaths(tmp_path: Path) -> None:
    times = tmp_path / "times"
    script = f"cut -d ' ' -f 1 /proc/uptime >> {times}; kill -9 $$"
    argv: list[str | Path] = [paths.libexec("mgpu-holder"), "--seccomp-socket", tmp_path / "seccomp.sock"]
    argv += ["--mgpud-socket", tmp_path / "holder.sock", "--", "/bin/sh", "-c", script]
    with subprocess.Popen(argv, stderr=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        until(lambda: times.exists() and len(times.read_text().split()) == 6, "six starts", timeout_s=30)
        process.terminate()
        assert process.wait(10) == 0
    at = [float(word) for word in times.read_text().split()]
    # The second is due at once, the others after 50, 100, 200 and 400 ms; the clock has hundredths.
    waits = [later - earlier for earlier, later in pairwise(at[1:])]
    assert all(wait > least - 0.02 for wait, least in zip(waits, (0.05, 0.1, 0.2, 0.4), strict=True)), waits


def test_mgpud_of_the_holder_before_is_waited_for(tmp_path: Path) -> None:
    argv = mgpud_argv(tmp_path, "--beat")
    with holding(tmp_path, mgpud=argv) as holder:
        first = serving(holder, 1)
        holder.process.kill()
        holder.process.wait()
    # The stand-in does not come back as mgpud does: once the next holder has lost patience, it is ended.
    with holding(tmp_path, "--watchdog-ms", "1000", mgpud=argv) as holder:
        serving(holder, 2)
        assert not alive(first)
        assert "does not come back" in holder.log()
