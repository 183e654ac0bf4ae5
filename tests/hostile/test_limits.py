"""What one container may have of mgpud's own room: at the bound it is refused, and no other notices."""

import os
from pathlib import Path

import pytest

from tests.hostile.siege import Siege
from tests.support.bundle import bundle
from tests.support.rm_numbers import NV_ERR_NO_MEMORY
from tests.support.scrape import scrape
from tests.support.waiting import until

OBJECTS_MAX, OBJECT_BYTES = 65536, 64 << 10
JOURNAL_MAX_BYTES = 9 << 20
NO_MEMORY = NV_ERR_NO_MEMORY
THREADS = 300
# Of one container and its listener, with 16 callers of two each and 16 files remembered (docs/boundary.md).
CONTAINER_FDS, LISTENER_FDS = 4, 4 + 2 * 16 + 16
LISTENERS_MAX = 32
STAYS = "exec sleep 3600 < /dev/null > /dev/null 2>&1"


def count(siege: Siege, what: str) -> int:
    return len(os.listdir(f"/proc/{siege.mgpud}/{what}"))


def calls(siege: Siege) -> float:
    return scrape(siege.mgpu.root).one("mgpu_mediated_calls_total")


def test_calls_that_wait_are_their_callers(siege: Siege) -> None:
    threads, fds = count(siege, "task"), count(siege, "fd")
    with siege.attempt("alloc_storm", str(THREADS)) as storm:
        assert storm.line() == "storming"
        begun = calls(siege)
        until(lambda: calls(siege) > begun + 10 * THREADS, "they call")
        siege.neighbour_is_well()
        assert count(siege, "task") == threads + 1
        assert count(siege, "fd") <= fds + CONTAINER_FDS + LISTENER_FDS
        storm.kill()


def test_objects_without_number(siege: Siege) -> None:
    with siege.attempt("many_objects", str(OBJECTS_MAX + 100), cap_mib=6144) as many:
        assert many.line() == "ready"
        many.running.tell()
        word, held, _, status = many.line().split()
        # Its client and its device are objects too.
        assert (word, int(held), int(status)) == ("made", OBJECTS_MAX - 2, NO_MEMORY)
        siege.neighbour_is_well()
        assert siege.counts_agree() == many.used_bytes == int(held) * OBJECT_BYTES
        name = f"tenant-{many.row['id'].removeprefix('g-')}"
        journal = Path(siege.mgpu.root / "journal" / name).stat().st_size
        assert OBJECTS_MAX * 100 < journal < JOURNAL_MAX_BYTES
        # The next one is refused as well, and is counted as what it is.
        many.running.tell()
        assert many.line() == f"made {held} status {NO_MEMORY}"
        refused = scrape(siege.mgpu.root).of("refused_calls_total", many.made.container, reason="memory")
        assert refused == 2
        many.kill()


@pytest.mark.parametrize(
    "execs", [LISTENERS_MAX + 8, pytest.param(1000, marks=[pytest.mark.soak, pytest.mark.timeout(1800)])]
)
def test_execs_that_leave_a_process_behind(siege: Siege, execs: int) -> None:
    threads, before = count(siege, "task"), siege.mgpu.ask("health")["listeners"]
    with siege.attempt("alloc_storm", "1") as storm:
        assert storm.line() == "storming"
        made = storm.made
        for _ in range(execs):
            made.call(siege.mgpu.runtime, "exec", "--detach", made.container, "sh", "-c", STAYS)
        assert count(siege, "task") - threads <= LISTENERS_MAX
        assert siege.mgpu.ask("health")["listeners"] - before == LISTENERS_MAX
        begun = calls(siege)
        until(lambda: calls(siege) > begun + 10, "its main process is served")
        siege.neighbour_is_well()
        # A container that starts now has its own.
        env = {"MGPU_MEMORY_MIB": "512"}
        with bundle("gpustat", "--no-header", env=env) as newcomer:
            done = newcomer.run(siege.mgpu.runtime)
            assert done.status == 0, done
            assert "512 MB" in done.out
        storm.kill()
