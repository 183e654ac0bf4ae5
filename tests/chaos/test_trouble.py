"""Whatever else can go wrong at once, or one after the other."""

import mmap
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from sim import cards
from tests.chaos import field as fields
from tests.chaos.faults import fill, read_only
from tests.chaos.field import Field, end, field_of
from tests.support import host, scrape
from tests.support.bundle import Bundle, bundle
from tests.support.commands import attempt, run
from tests.support.programs import Programs
from tests.support.rm_numbers import NV_ERR_GPU_IS_LOST, NV_ERR_NO_MEMORY
from tests.support.waiting import until

# How long the mixture goes on; `make chaos SECONDS=...` sets it.
SECONDS = float(os.environ.get("MGPU_CHAOS_SECONDS") or 8)
RUN_MIB = 64
# Of 64 KiB each: more than the journal has room for without growing.
MOST_OBJECTS = 4096


@contextmanager
def small_run() -> Iterator[Path]:
    """A /run/mgpu that is a small file system of its own."""
    with host.home("small") as folder:
        run("mount", "-t", "tmpfs", "-o", f"size={RUN_MIB}m,mode=0700", "tmpfs", folder)
        try:
            yield folder / "r"
        finally:
            run("umount", "-l", folder)


def create(field: Field, made: Bundle) -> tuple[int, str]:
    """Status and words of a container that is started and ends at once."""
    done = made.run(field.mgpu.runtime)
    return done.status, done.err


@contextmanager
def short_container(memory_mib: int = 256) -> Iterator[Bundle]:
    with bundle("true", env={"MGPU_MEMORY_MIB": str(memory_mib)}) as made:
        yield made


def refused_in_one_line(field: Field, why: str) -> None:
    with short_container() as made:
        status, said = create(field, made)
    assert status != 0, "a container was started that nobody has a record of"
    assert why in said
    assert [line for line in said.splitlines() if line.startswith("mgpu: ")], said


def starts(field: Field) -> None:
    with short_container() as made:
        status, said = create(field, made)
        assert status == 0, said


def test_full_and_a_read_only_run(built: Programs) -> None:
    """Nothing new is admitted, nothing is changed, and those that run go on, also under the next mgpud."""
    chosen = fields.seed()
    with small_run() as root, field_of(built, 3, chosen, root=root) as field:
        name = field.tenants[0].name
        # Not even the rest of a page for a line of the log.
        log = root / "log" / "mgpud.log"
        with log.open("ab") as file:
            file.write(b"\n" * (-log.stat().st_size % mmap.PAGESIZE))
        ballast = fill(root)
        refused_in_one_line(field, "No space left on device")
        before = field.mgpu.containers()[0]["cards"][0]["memory_mib"]
        changed = field.mgpu.try_mgpu("set", name, "--memory", str(before + 64))
        assert changed.status != 0
        assert "No space left on device" in changed.err
        assert field.mgpu.containers()[0]["cards"][0]["memory_mib"] == before
        field.mark()
        field.wait_for_answer(field.kill_mgpud())
        time.sleep(0.5)
        field.well()
        ballast.unlink()
        starts(field)
        field.judge()
        with read_only(root):
            refused_in_one_line(field, "Read-only file system")
            field.mark()
            field.all_answered(time.monotonic_ns())
            field.well()
        starts(field)
        field.judge()


def test_full_journal_refuses_and_recovers(built: Programs) -> None:
    """Where the journal has no room for one more object, there is no memory for it; once there is, there
    is."""
    chosen = fields.seed()
    env = {"MGPU_MEMORY_MIB": str(2 * MOST_OBJECTS // 16)}
    with small_run() as root, field_of(built, 1, chosen, root=root) as field:
        with built.bundle("many_objects", str(MOST_OBJECTS), env=env) as made:
            with made.running(field.mgpu.runtime) as hungry:
                assert hungry.line() == "ready"
                ballast = fill(root)
                hungry.tell()
                word, held, _, status = hungry.line().split()
                assert (word, int(status)) == ("made", NO_MEMORY)
                assert 0 < int(held) < MOST_OBJECTS
                field.mark()
                field.wait_for_answer(field.kill_mgpud())
                field.well()
                hungry.tell()
                assert hungry.line() == f"made {held} status {NO_MEMORY}"
                ballast.unlink()
                hungry.tell()
                assert hungry.line() == f"made {MOST_OBJECTS} status 0"
                field.judge()


GPU_IS_LOST, NO_MEMORY = NV_ERR_GPU_IS_LOST, NV_ERR_NO_MEMORY


def test_lost_card_leaves_other_cards_steady(built: Programs) -> None:
    """Its containers get the driver's own error; the others notice nothing, also under the next mgpud."""
    chosen = fields.seed()
    with field_of(built, 2, chosen, cards="h200:2") as field:
        with fields.tenant(field.mgpu, built, fields.PER_CARD, chosen) as unlucky:
            cards.ask(field.mgpu.root / "sim" / "admin.sock", "lose 1")
            said = unlucky.running.line()
            assert said.startswith("wrong: "), said
            assert f": {GPU_IS_LOST} instead of 0" in said
            until(lambda: field.mgpu.listing()["cards"][1]["lost"], "mgpud says so")
            assert [card["lost"] for card in field.mgpu.listing()["cards"]] == [False, True]
            text = scrape.text_at(field.mgpu.root / "metrics.sock")
            assert [line[-3:] for line in text.splitlines() if line.startswith("mgpu_card_lost{")] == [
                "0.0",
                "1.0",
            ]
            for _ in range(2):
                field.mark()
                field.wait_for_answer(field.kill_mgpud())
                field.well()
        starts(field)
        with bundle("true", env={"MGPU_MEMORY_MIB": "256", "NVIDIA_VISIBLE_DEVICES": "1"}) as made:
            status, said = create(field, made)
            assert status != 0, "a container was put on a lost GPU"
            assert 'has no GPU "1"' in said, said
        field.judge()


def kill_mgpud(field: Field) -> None:
    field.mark()
    field.wait_for_answer(field.kill_mgpud())


def kill_both(field: Field) -> None:
    field.mark()
    field.wait_for_answer(field.kill_both())


def kill_twice(field: Field) -> None:
    """The next mgpud dies while it recovers."""
    field.mark()
    field.kill_mgpud()
    time.sleep(field.random.random() * 0.2)
    for pid in field.mgpu.pids_of("mgpud"):
        with suppress(ProcessLookupError):
            end(pid)
    field.wait_for_answer(time.monotonic_ns())


def stop_mgpud(field: Field) -> None:
    pid = field.mgpu.pid_of("mgpud")
    os.kill(pid, signal.SIGSTOP)
    time.sleep(field.random.random() * 2)
    os.kill(pid, signal.SIGCONT)


def kill_a_runtime(field: Field) -> None:
    """While it creates a container, at any instant; mgpud too, half of the times. What it held is given
    back.
    """
    with short_container() as made:
        argv = made.run_argv(field.mgpu.runtime)
        with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            time.sleep(field.random.random() * 0.3)
            process.kill()
        if field.random.random() < 0.5:
            kill_mgpud(field)
        attempt(*made.argv(field.mgpu.runtime, "delete", "--force", made.container))
        gone(field, made.container)


def kill_a_hook(field: Field) -> None:
    """A hook that is killed fails the container's start."""
    with short_container() as made:
        argv = made.run_argv(field.mgpu.runtime)
        with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            deadline = time.monotonic() + 1
            while process.poll() is None and time.monotonic() < deadline:
                for pid in hooks(field):
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            process.wait(60)
        attempt(*made.argv(field.mgpu.runtime, "delete", "--force", made.container))
        gone(field, made.container)


def hooks(field: Field) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if b"mgpu-hook\0bind" in words and bytes(field.mgpu.root) in words:
                found.append(int(entry.name))
    return found


def kill_a_container(field: Field) -> None:
    """One that works, while there is no mgpud, half of the times."""
    with fields.tenant(field.mgpu, field.built, 0, field.random.randrange(1 << 30)) as found:
        time.sleep(field.random.random() * 0.2)
        pid = next(row["pid"] for row in field.mgpu.containers() if row["container_id"] == found.name)
        field.mark()
        died_ns = field.kill_mgpud() if field.random.random() < 0.5 else None
        end(pid)
        if died_ns is not None:
            field.wait_for_answer(died_ns)
        gone(field, found.name)


def gone(field: Field, name: str) -> None:
    until(
        lambda: all(row["container_id"] != name for row in field.mgpu.containers()),
        f"the grant of {name} is back",
        timeout_s=fields.SETTLE_S,
    )


ACTIONS: dict[Callable[[Field], None], int] = {
    kill_mgpud: 6,
    kill_both: 3,
    kill_twice: 2,
    stop_mgpud: 1,
    kill_a_runtime: 3,
    kill_a_hook: 1,
    kill_a_container: 3,
}


def test_holder_and_mgpud_that_end_at_once_leave_containers_steady(built: Programs) -> None:
    """Also while the next ones begin: no listener is lost, and no call is answered wrongly."""
    chosen = fields.seed()
    with field_of(built, 6, chosen) as field:
        for _ in range(5):
            kill_both(field)
            field.mark()
            field.kill_both()
            time.sleep(field.random.random() * 0.2)
            field.wait_for_answer(field.kill_both())
            field.all_answered(time.monotonic_ns())
            field.served_once()
            field.well()
        field.judge()
        print(field.report())


@pytest.mark.timeout(int(SECONDS * 2) + 120)
def test_mixed_trouble_leaves_containers_steady(built: Programs) -> None:
    chosen = fields.seed()
    slow = ("rm-tail-us=10000", "rm-tail-per-mille=10")
    done: dict[str, int] = {}
    with field_of(built, 6, chosen, sim_options=slow) as field:
        end_s = time.monotonic() + SECONDS
        while time.monotonic() < end_s:
            [action] = field.random.choices(list(ACTIONS), list(ACTIONS.values()))
            done[action.__name__] = done.get(action.__name__, 0) + 1
            action(field)
            field.served_once()
            field.over_cap()
            field.well()
            if sum(done.values()) % 5 == 0:
                field.judge()
        field.judge()
        print(field.report(), *(f"{name} {count}" for name, count in sorted(done.items())), sep="; ")
    assert done
