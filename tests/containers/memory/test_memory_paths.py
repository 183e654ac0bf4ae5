"""Every way to video memory is charged or refused, under several driver versions; a call that changes between
check and use costs its container its life, and no other.
"""

import errno
import signal
from pathlib import Path

import pytest

from tests.support import arbiter
from tests.support.arbiter import Arbiter
from tests.support.commands import attempt
from tests.support.lasting import shared_mgpu
from tests.support.places import MGPU
from tests.support.programs import Programs
from tests.support.scrape import scrape
from tests.support.waiting import until

MIB = 1 << 20
ENV = {"MGPU_MEMORY_MIB": "2048", "MGPU_GPUS": "2"}


def nothing_left(mgpu: Arbiter) -> None:
    until(lambda: mgpu.containers() == [], "the grants are back")
    assert mgpu.in_use() == ([0, 0], [0, 0])


def test_every_path(mgpu: Arbiter, built: Programs) -> None:
    with built.bundle("memory_paths", "all", env=ENV) as made:
        done = made.run(mgpu.runtime)
        assert done.out == "ok\n", str(done)
    nothing_left(mgpu)


# What a file held stays held for a while after its last close, as a driver takes its time over that.
slow_to_close = shared_mgpu(sim_options=["close-us=200000"])


def test_every_path_where_files_end_late(slow_to_close: Arbiter, built: Programs) -> None:
    with built.bundle("memory_paths", "all", env=ENV) as made:
        done = made.run(slow_to_close.runtime)
        assert done.out == "ok\n", str(done)
    nothing_left(slow_to_close)


def test_exited_process_leaves_all_memory_to_the_next(slow_to_close: Arbiter, built: Programs) -> None:
    with built.bundle("in_turn", "4", env={"MGPU_MEMORY_MIB": "1024"}) as made:
        had = [int(line) for line in made.output(slow_to_close.runtime).split()]
        assert len(had) == 4
        assert set(had) == {had[0]}
    nothing_left(slow_to_close)


def test_duplicate_outlives_its_file_within_its_container(mgpu: Arbiter, built: Programs) -> None:
    with built.bundle("memory_paths", "hold", env=ENV) as made, made.running(mgpu.runtime) as running:
        name = running.line().split()
        assert running.line() == "duplicated"
        until(lambda: mgpu.containers()[0]["cards"][0]["used_bytes"] == MIB, "it is charged once")
        with built.bundle("memory_paths", "steal", *name, env=ENV) as thief:
            done = thief.run(mgpu.runtime)
            assert done.out == f"{0x1B}\n", str(done)
        assert mgpu.in_use() == ([MIB, 0], [MIB, 0])
        running.tell()
        assert running.line() == "freed"
        assert mgpu.in_use() == ([0, 0], [0, 0])
        running.tell()
        assert running.line() == "ok"
    nothing_left(mgpu)


def test_managed_memory_is_charged_on_each_card(mgpu: Arbiter, built: Programs) -> None:
    """The card counts none of it, as no driver does."""
    with built.bundle("managed", "over", env=ENV) as made, made.running(mgpu.runtime) as running:
        assert running.line() == f"{1024 * MIB} {errno.ENOMEM}"
        assert mgpu.in_use() == ([1024 * MIB] * 2, [0, 0])
    nothing_left(mgpu)


def run_cuda(mgpu: Arbiter, built: Programs) -> None:
    with built.bundle("capped", env={"MGPU_MEMORY_MIB": "1024"}) as made:
        assert '"after": 0' in made.output(mgpu.runtime)
    nothing_left(mgpu)


@pytest.mark.parametrize(
    ("version", "table"),
    [("535.183.01", "535.86"), ("550.163.01", "550.54"), ("570.211.01", "570.86"), ("595.45.04", "595.44")],
)
def test_cuda_under_other_driver_versions(built: Programs, version: str, table: str) -> None:
    with arbiter.running(sim_options=[f"driver-version={version}"]) as mgpu:
        health = mgpu.ask("health")
        assert (health["driver_version"], health["rm_table"]) == (version, table)
        assert health["rm_table_override"] is None
        run_cuda(mgpu, built)


def test_driver_taken_for_another_is_said_aloud(built: Programs) -> None:
    with arbiter.running(
        sim_options=["driver-version=575.64.05"], node_config='driver_table = "575"\n'
    ) as mgpu:
        health = mgpu.ask("health")
        assert (health["rm_table"], health["rm_table_override"]) == ("575.51", "575")
        assert (
            "event=driver-table-overridden driver_version=575.64.05 taken_for=575"
            in (mgpu.root / "log/mgpud.log").read_text()
        )
        run_cuda(mgpu, built)


def test_unknown_driver_is_refused_in_one_line(tmp_path: Path) -> None:
    config = tmp_path / "node.toml"
    config.write_text('driver_table = "600"\n')
    done = attempt(MGPU, "up", "--sim", "a10", "--root", tmp_path / "r", "--node-config", config)
    assert done.status == 1
    assert done.err == (
        "mgpu: driver 600 is none of those whose interface is known: 535.86, 545.23, 550.54, 555.42, 560.28, "
        "565.57, 570.86, 575.51, 580.65, 590.44, 595.44, 610.43, 615.71 and later ones of each branch; "
        "install one of them, or set driver_table in node.toml to the branch it is like\n"
    )


def test_call_that_changes_between_check_and_use(built: Programs) -> None:
    with arbiter.running(sim_options=["reread-us=1000"]) as mgpu:
        with built.bundle("hold", "64", env={"MGPU_MEMORY_MIB": "512"}) as neighbour:
            with neighbour.running(mgpu.runtime) as beside:
                assert beside.line() == "held 0"
                held = mgpu.in_use()
                until(lambda: (mgpu.root / "metrics.sock").exists(), "metrics are served")
                assert scrape(mgpu.root).values("mgpu_audit_mismatches_total") == [0, 0]
                with built.bundle("reclass", env=ENV) as made, made.running(mgpu.runtime) as attacker:
                    assert attacker.line() == "attacking"
                    assert attacker.process.wait(60) == 128 + signal.SIGKILL
                until(lambda: len(mgpu.containers()) == 1, "the attacker's grant is back")
                assert mgpu.in_use() == held
                said = (mgpu.root / "log" / "mgpud.log").read_text()
                assert said.count("event=killed-unaccounted") == 1
                # Its own series ended with it.
                found = scrape(mgpu.root)
                assert [found.one("mgpu_audit_mismatches_total", card=card) for card in "01"] == [1, 0]
                assert beside.process.poll() is None
                neighbour.call(mgpu.runtime, "kill", neighbour.container, "KILL")
        nothing_left(mgpu)
