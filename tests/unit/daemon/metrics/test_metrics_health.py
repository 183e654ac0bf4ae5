"""The watchdog, the `health` verb and `mgpu health`."""

import json
import os
import re
import socket
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from mgpu_cli import health
from mgpu_cli.health import checks
from mgpu_cli.main import main
from native_sched.daemon.control.health import PERIOD_S, STUCK_S, with_threads
from native_sched.daemon.control.server import Peer
from native_sched.daemon.node import sd_notify
from oci_specs import schemas
from oci_specs.refusal import Refusal
from runtime_hook import needs
from runtime_hook.needs import Missing
from tests.unit.cli_support import HEALTH, FakeMgpud, card, container, fake_mgpud, list_reply
from tests.unit.metrics_support import node

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
REPLY = {"version": 1, "ok": True, **HEALTH}
LISTING = list_reply([container()], [card()])


def error(minutes_ago: int, level: str = "error") -> dict[str, str]:
    at = (datetime.now(UTC) - timedelta(minutes=minutes_ago)).isoformat(timespec="milliseconds")
    return {"time": at.replace("+00:00", "Z"), "level": level, "event": "x", "text": 'why="a b"'}


def test_stuck_thread_is_logged_once_and_when_it_turns_again() -> None:
    with node() as world:
        world.pass_s(20)
        assert world.watchdog.scheduler.stuck_s == 0
        world.engine.turns_alone = False
        world.pass_s(STUCK_S - PERIOD_S)
        assert world.watchdog.scheduler.stuck_s == STUCK_S - PERIOD_S
        assert world.log.recent() == []
        world.pass_s(60)
        assert [entry.event for entry in world.log.recent()] == ["thread-stuck"]
        assert world.one("mgpu_thread_stuck_seconds", thread="scheduler") == STUCK_S - PERIOD_S + 60
        world.engine.turns_alone = True
        world.pass_s(2)
        assert [entry.event for entry in world.log.recent()] == ["thread-stuck", "thread-turns-again"]
        assert world.one("mgpu_thread_stuck_seconds", thread="scheduler") == 0


def test_mediator_is_stuck_after_several_polls_at_one_call() -> None:
    with node() as world:
        # The process was stopped for a minute: the next look finds an old call, which then ends.
        world.engine.serving_ns = 60 * 10**9
        world.pass_s(2)
        world.engine.serving_ns = 0
        world.pass_s(10)
        assert world.log.recent() == []
        world.engine.serving_ns = 60 * 10**9
        world.pass_s(STUCK_S)
        [entry] = world.log.recent()
        assert (entry.level, entry.text) == ("error", "thread=mediator seconds=10.0")


def test_stuck_event_loop_is_seen_by_the_watchdog_thread() -> None:
    with node() as world:
        for _ in range(6):
            world.watchdog.look()
        [entry] = world.log.recent()
        assert "thread=daemon" in entry.text
        assert world.ticks == 0
        world.pass_s(2)
        assert world.ticks == 1


def test_lost_driver_is_told_once() -> None:
    with node() as world:
        world.engine.driver_alive = False
        world.pass_s(10)
        assert [entry.event for entry in world.log.recent()] == ["driver-lost"]
        assert world.one("mgpu_driver_up") == 0


def test_watchdogs_own_thread_looks_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("native_sched.daemon.control.health.PERIOD_S", 0.001)
    with node() as world:
        world.watchdog.start()
        while world.watchdog.turns < 3:
            pass
        world.watchdog.stop()


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """The socket of a service manager that wants to be told."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(30)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        yield listening


def test_systemd_is_notified_while_all_threads_turn(
    manager: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("native_sched.daemon.control.health.PERIOD_S", 0.001)
    monkeypatch.setattr("native_sched.daemon.control.health.STUCK_S", 0.01)
    with node() as world:
        # The loop of the fake is turned by hand only: the daemon counts as stuck after ten looks.
        world.watchdog.start()
        assert [manager.recv(64) for _ in range(2)] == [b"READY=1", b"WATCHDOG=1"]
        while not world.watchdog.daemon.stuck:
            time.sleep(0.001)
        turns = world.watchdog.turns
        while world.watchdog.turns < turns + 3:
            time.sleep(0.001)
        world.watchdog.stop()
        told = [manager.recv(64)]
        while told[-1] != b"STOPPING=1":
            told.append(manager.recv(64))
        assert len(told) <= 10 + 1, "it went on to say that it is alive"


@pytest.mark.parametrize("path", ["", "nonsense", "/nowhere/notify", "@nowhere"])
def test_manager_that_is_not_there_is_no_fault(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", path)
    sd_notify.tell(sd_notify.READY)


def test_verb_tells_what_its_schema_says() -> None:
    with node() as world:
        world.log.error("listener-not-served", container="c", why="Too many open files")
        plain = {name: HEALTH[name] for name in list(HEALTH)[:16]}
        found = with_threads(lambda message, peer: plain, world.watchdog)({}, Peer(1, 0))
        schemas.validate("control#health-reply", {"version": 1, "ok": True, **found})
        assert found["errors"][0]["event"] == "listener-not-served"


def judged(
    found: dict[str, Any] | Refusal = HEALTH, *missing: Missing, metrics: bool = True
) -> dict[str, tuple[str, str]]:
    made = checks(found, LISTING, missing=missing, metrics=metrics, now=NOW)
    return {one.name: (one.state, one.text) for one in made}


def test_healthy_node_has_no_findings() -> None:
    assert {state for state, _text in judged().values()} == {"ok"}


@pytest.mark.parametrize(
    ("changed", "name", "state", "says"),
    [
        ({"scheduler_stuck_seconds": 12.0}, "scheduler", "failed", "stuck for 12 s"),
        ({"scheduler_stuck_seconds": 4.0}, "scheduler", "ok", "SCHED_FIFO"),
        ({"mediator_stuck_seconds": 12.0}, "mediator", "failed", "at one call for 12 s"),
        ({"sched_fifo": False}, "scheduler", "attention", "not under SCHED_FIFO"),
        ({"cards": 0}, "GPUs", "attention", "0"),
    ],
)
def test_health_names_each_fault(changed: dict[str, Any], name: str, state: str, says: str) -> None:
    found = judged({**HEALTH, **changed})
    assert found[name][0] == state
    assert says in found[name][1]
    assert {one for other, (one, _) in found.items() if other != name} == {"ok"}


def test_errors_are_news_for_ten_minutes() -> None:
    entry = {"level": "error", "event": "x", "text": ""}
    for minutes, state in ((9, "attention"), (11, "ok")):
        at = (NOW - timedelta(minutes=minutes)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        assert judged({**HEALTH, "errors": [{"time": at, **entry}]})["errors"][0] == state
        assert judged({**HEALTH, "errors": [{"time": at, **entry, "level": "warning"}]})["errors"][0] == "ok"


def test_health_names_what_a_start_misses() -> None:
    holder = Missing("holder", "all", "no mgpu-holder answers", "restart it")
    engine = Missing("engine", "some", "it is newer", "restart that")
    found = judged(HEALTH, holder, engine)
    assert found["holder"] == ("failed", "no mgpu-holder answers; restart it")
    assert found["engine"] == ("attention", "it is newer; restart that")
    assert "start" not in found
    gone = Refusal("mgpud-not-running", "mgpud is not running", "start it")
    assert judged(gone, holder) == {"holder": ("failed", "no mgpu-holder answers; restart it")}


def test_dangling_link_among_cdi_specs_stops_starts_by_its_name_alone(tmp_path: Path) -> None:
    def missing(health: dict[str, Any]) -> dict[str, str]:
        folders = needs.cdi_folders(tmp_path, "cdi_dirs = []", health)
        place = needs.Place(state=tmp_path, health=health, cdi_folders=folders)
        return {each.name: each.what for each in needs.missing(place) if each.name == "cdi"}

    (tmp_path / "cdi").mkdir()
    spec = {
        "cdiVersion": "0.5.0",
        "kind": "sim.mgpu.dev/gpu",
        "devices": [{"name": "0", "containerEdits": {}}],
    }
    (tmp_path / "cdi" / "sim.json").write_text(json.dumps(spec))
    (tmp_path / "cdi" / "old.yaml.bak").symlink_to("nothing")
    assert missing(HEALTH) == {}
    (tmp_path / "cdi" / "old.yaml").symlink_to("nothing")
    assert "old.yaml: cannot be read: No such file or directory" in missing(HEALTH)["cdi"]
    # mgpud's word on its folders is above that of a node.toml, which may not be the one that it reads.
    (tmp_path / "cdi" / "old.yaml").unlink()
    (tmp_path / "cdi" / "sim.json").rename(tmp_path / "sim.json")
    assert missing(HEALTH)
    assert missing({**HEALTH, "cdi_dirs": [str(tmp_path)]}) == {}


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_SEQPACKET])
def test_listening_is_what_the_kernel_says(tmp_path: Path, kind: int) -> None:
    path = tmp_path / "a b.sock"
    with socket.socket(socket.AF_UNIX, kind) as made:
        assert not needs.listens(path)
        made.bind(str(path))
        made.listen()
        made.setblocking(False)
        assert needs.listens(path)
        with pytest.raises(BlockingIOError):
            made.accept()
        path.rename(tmp_path / "away")
        assert not needs.listens(path)
    assert not needs.listens(tmp_path / "away")


@pytest.fixture
def mgpud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeMgpud]:
    monkeypatch.setenv("MGPU_ROOT", str(tmp_path))
    monkeypatch.setattr(needs, "ROWS", [row for row in needs.ROWS if row[0] in ("mgpud", "sockets")])
    with fake_mgpud(tmp_path / "mgpud.sock") as fake:
        fake.reply_to("health", REPLY)
        fake.reply_to("list", LISTING)
        yield fake


def serve(tmp_path: Path, *names: str) -> list[socket.socket]:
    made = []
    for name in names:
        made.append(socket.socket(socket.AF_UNIX))
        made[-1].bind(os.fspath(tmp_path / name))
        made[-1].listen()
    return made


def run(*args: str) -> Result:
    return CliRunner().invoke(main, ["health", *args])


def test_screen_and_its_status(mgpud: FakeMgpud, tmp_path: Path) -> None:
    result = run()
    assert result.exit_code == 2, "nobody listens for containers"
    sockets = serve(tmp_path, "seccomp.sock", "metrics.sock")
    result = run()
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert lines[0].split() == ["ok", "mgpud", "pid", "4242,", "up", "1:02:03,", "at", "most", "45", "MiB"]
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 24
    assert "512/4309/16160" in result.output
    mgpud.reply_to("health", {**REPLY, "errors": [error(1), error(60, "warning")]})
    result = run()
    assert result.exit_code == 1
    assert result.output.rstrip().endswith('warning x why="a b"')
    for one in sockets:
        one.close()


def test_json_says_the_same(mgpud: FakeMgpud, tmp_path: Path) -> None:
    sockets = serve(tmp_path, "seccomp.sock", "metrics.sock")
    mgpud.reply_to("health", {**REPLY, "sched_fifo": False})
    result = run("-o", "json")
    found = json.loads(result.output)
    assert (result.exit_code, found["status"]) == (1, 1)
    assert found["mgpud"] == {**HEALTH, "sched_fifo": False}
    assert [one["name"] for one in found["checks"] if one["state"] == "attention"] == ["scheduler"]
    for one in sockets:
        one.close()


def test_health_without_mgpud_exits_with_2(tmp_path: Path) -> None:
    result = run("--root", str(tmp_path))
    assert result.exit_code == 2
    assert re.search("failed +mgpud +mgpud is not running", result.output)
    assert json.loads(run("--root", str(tmp_path), "-o", "json").output)["mgpud"] is None


def test_names_in_the_log_do_not_command_the_terminal(mgpud: FakeMgpud) -> None:
    mgpud.reply_to("health", {**REPLY, "errors": [{**error(1), "text": "container=\x1b[2J\n"}]})
    assert "\x1b" not in run().output


def test_statuses_are_the_plugins() -> None:
    assert health.STATUS == {"ok": 0, "attention": 1, "failed": 2}
