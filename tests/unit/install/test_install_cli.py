import json
import os
import signal
import socket
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from install import apply, folders, runtime_conf
from install.change import Change, Plan
from install.engines import ENGINES
from mgpu_cli import drain as drain_command
from mgpu_cli import install as install_command
from mgpu_cli.main import main
from oci_specs.refusal import Refusal
from tests.unit.cli_support import container, fake_mgpud, list_reply

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may change what engines read")


@pytest.fixture
def machine(tmp_path: Path, plain_prefix: None, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in whose etc mgpu's own configuration lies, and no engine is installed."""
    monkeypatch.setattr(runtime_conf, "RUNTIME_CONF", tmp_path / "etc" / "mgpu" / "runtime.conf")
    monkeypatch.setattr(runtime_conf, "ENGINES", {})
    return tmp_path


def run(machine: Path, verb: str, *args: str | Path) -> Result:
    options = [] if verb == "install" else ["--root", str(machine / "run")]
    return CliRunner().invoke(main, [verb, *options, *map(str, args)])


def config(machine: Path, text: str = '{"debug": true}\n') -> Path:
    path = machine / "etc" / "docker" / "daemon.json"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    return path


@needs_root
def test_uninstall_restores_the_file(machine: Path) -> None:
    path = config(machine)
    done = run(machine, "install", "docker", "--config", path)
    assert (done.exit_code, done.stderr) == (0, "")
    assert f"changed {path}" in done.stdout
    assert "to take effect: systemctl reload docker" in done.stdout
    assert json.loads(path.read_text())["runtimes"]["mgpu"]["path"].endswith("/libexec/mgpu/mgpu-runtime")
    assert 'socket = "/run/mgpu/mgpud.sock"' in (machine / "etc" / "mgpu" / "runtime.conf").read_text()
    again = run(machine, "install", "docker", "--config", path)
    assert again.stdout.startswith("docker: nothing to do\n")
    assert "to take effect" not in again.stdout
    done = run(machine, "uninstall", "docker", "--config", path)
    assert (done.exit_code, done.stderr) == (0, "")
    assert path.read_text() == '{"debug": true}\n'
    assert [each for each in machine.rglob("*") if each.is_file()] == [path]


@needs_root
def test_folders_that_install_has_made_go_with_their_files(machine: Path) -> None:
    (machine / "etc" / "before").mkdir(parents=True)
    for path in (
        machine / "etc" / "new" / "below" / "docker.json",
        machine / "etc" / "before" / "docker.json",
    ):
        assert run(machine, "install", "docker", "--config", path).exit_code == 0
        assert run(machine, "uninstall", "docker", "--config", path).exit_code == 0
    assert {each.relative_to(machine).as_posix() for each in machine.rglob("*")} == {"etc", "etc/before"}


def test_folders_in_use_stay(tmp_path: Path) -> None:
    record = tmp_path / "mgpu" / "made-folders"
    ours, shared = tmp_path / "ours", tmp_path / "shared" / "below"
    changes = tuple(
        Change(path=path, before=None, after=b"") for path in (ours / "x", shared / "x", record.parent / "y")
    )
    [change] = folders.noted(Plan(changes), record).changes
    assert change.after == f"{ours}\n{shared.parent}\n{shared}\n".encode()
    for folder in (record.parent, ours, shared):
        folder.mkdir(parents=True)
    record.write_bytes(change.after)
    (shared / "of-the-operator").touch()
    apply.apply(folders.removed(record, last=False))
    assert not ours.exists()
    assert record.read_text() == f"{shared.parent}\n{shared}\n"
    apply.apply(folders.removed(record, last=True))
    assert (shared / "of-the-operator").exists()
    assert not record.exists()


@needs_root
def test_output_and_refusals_write_no_folders_down(machine: Path) -> None:
    path = machine / "etc" / "new" / "docker.json"
    out = run(machine, "install", "docker", "--config", path, "--output", machine / "out")
    assert out.exit_code == 0
    assert not list(machine.rglob("made-folders"))
    (machine / "etc").write_text("")
    assert run(machine, "install", "docker", "--config", path).exit_code == 1
    assert not list(machine.rglob("made-folders"))


def test_dry_run_shows_a_diff_and_changes_nothing(machine: Path) -> None:
    path = config(machine)
    done = run(machine, "install", "docker", "--config", path, "--dry-run")
    assert done.exit_code == 0
    assert f"--- {path}\n+++ {path}\n" in done.stdout
    assert '+{"debug": true, "runtimes": {"mgpu": ' in done.stdout
    assert [each for each in machine.rglob("*") if each.is_file()] == [path]


def test_output_writes_below_a_folder_only(machine: Path) -> None:
    path = config(machine)
    out = machine / "out"
    done = run(machine, "install", "docker", "--config", path, "--output", out)
    assert done.exit_code == 0
    assert path.read_text() == '{"debug": true}\n'
    assert "runtimes" in json.loads((out / path.relative_to("/")).read_text())
    assert sorted(each.name for each in out.rglob("*") if each.is_file()) == ["daemon.json", "runtime.conf"]


def test_output_names_what_this_host_has_already(machine: Path) -> None:
    path = config(machine)
    assert run(machine, "install", "docker", "--config", path, "--output", machine / "out").exit_code == 0
    path.write_bytes((machine / "out" / path.relative_to("/")).read_bytes())
    done = run(machine, "install", "docker", "--config", path, "--output", machine / "next")
    assert done.exit_code == 0
    assert f"left out {path}: this host's has all of it already\n" in done.stdout


@needs_root
@pytest.mark.parametrize("verb", ["install", "uninstall"])
def test_failing_engine_changes_no_file(machine: Path, verb: str) -> None:
    path = config(machine, "{")
    done = run(machine, verb, "docker", "--config", path)
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith(f"mgpu: {path} is not valid JSON")
    assert [each for each in machine.rglob("*") if each.is_file()] == [path]


@needs_root
def test_runtime_below_stays_as_it_was_chosen(machine: Path) -> None:
    path = config(machine)
    for choice in (["--runtime", "true"], []):
        assert run(machine, "install", "docker", "--config", path, *choice).exit_code == 0
        assert "/true" in (machine / "etc" / "mgpu" / "runtime.conf").read_text().splitlines()[1]


def test_config_option_needs_exactly_one_engine(machine: Path) -> None:
    done = run(machine, "install", "docker", "podman", "--config", "/x", "--dry-run")
    assert (done.exit_code, "name one engine" in done.stderr) == (2, True)


def test_install_all_covers_every_engine_present(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install_command, "is_here", lambda engine: engine.name in ("podman", "systemd"))
    assert [engine.name for engine in install_command.select(["all"], None)] == ["systemd", "podman"]
    assert [engine.name for engine in install_command.select(["crio", "all"], None)] == [
        "systemd",
        "crio",
        "podman",
    ]
    assert [engine.name for engine in install_command.select(["podman", "docker"], None)] == [
        "docker",
        "podman",
    ]


def test_install_all_without_engines_is_one_line(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install_command, "is_here", lambda _: False)
    done = run(machine, "install", "all", "--dry-run")
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "docker, containerd, crio, podman is installed here" in done.stderr


@pytest.mark.parametrize("name", sorted(ENGINES))
def test_every_engine_is_shown_on_a_machine_without_it(machine: Path, name: str) -> None:
    done = run(machine, "install", name, "--config", machine / "none", "--bin-dir", machine, "--dry-run")
    assert (done.exit_code, "+++ " in done.stdout) == (0, True), done.stderr


@needs_root
def test_uninstall_is_refused_while_containers_hold_a_gpu(machine: Path) -> None:
    path = config(machine)
    run(machine, "install", "docker", "--config", path)
    before = path.read_text()
    (machine / "run").mkdir()
    with fake_mgpud(machine / "run" / "mgpud.sock") as mgpud:
        mgpud.reply(list_reply([container(), container(pod="p", namespace="n", container="c")], []))
        done = run(machine, "uninstall", "docker", "--config", path)
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == (
        "mgpu: 2 containers hold a GPU: 0123456789ab, n/p/c; "
        "stop them, or wait for them with --drain; nothing was changed\n"
    )
    assert path.read_text() == before


@needs_root
def test_drain_waits_for_the_last_one(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drain_command, "POLL_S", 0.01)
    path = config(machine)
    run(machine, "install", "docker", "--config", path)
    (machine / "run").mkdir()
    with fake_mgpud(machine / "run" / "mgpud.sock") as mgpud:
        held = list_reply([container()], [])
        mgpud.reply_to("list", held, held, list_reply([], []))
        done = run(machine, "uninstall", "docker", "--config", path, "--drain")
    assert done.exit_code == 0, done.stderr
    assert done.stdout.startswith("waiting: 1 container holds a GPU: 0123456789ab\ndocker:\n")
    assert path.read_text() == '{"debug": true}\n'


@needs_root
def test_holder_without_mgpud_may_hold_containers(machine: Path) -> None:
    path = config(machine)
    run(machine, "install", "docker", "--config", path)
    (machine / "run").mkdir()
    with socket.socket(socket.AF_UNIX) as holder:
        holder.bind(str(machine / "run" / "seccomp.sock"))
        holder.listen()
        done = run(machine, "uninstall", "docker", "--config", path)
        assert (done.exit_code, "mgpud does not run, but its holder does" in done.stderr) == (1, True)
    # The socket's file is still there, and no program listens.
    assert run(machine, "uninstall", "docker", "--config", path).exit_code == 0


@needs_root
def test_shared_file_stays_while_another_engine_needs_it(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime_conf, "_is_pointed_at_us", lambda engine, own: engine.name == "podman")
    monkeypatch.setattr(runtime_conf, "ENGINES", ENGINES)
    path = config(machine)
    run(machine, "install", "docker", "--config", path)
    run(machine, "uninstall", "docker", "--config", path)
    assert (machine / "etc" / "mgpu" / "runtime.conf").exists()


def test_restart_of_an_engine_by_its_pid_is_a_hangup(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from install import docker
    from install import restart as module
    from install.engine import Intent

    (machine / "docker.pid").write_text(f"{os.getpid()}\n")
    path = config(machine, json.dumps({"pidfile": str(machine / "docker.pid")}))
    sent = []
    monkeypatch.setattr(os, "kill", lambda pid, number: sent.append((pid, number)))
    monkeypatch.setattr(module, "SYSTEMD_RUNS", machine / "none")
    # The pid of another program is left alone.
    with pytest.raises(Refusal, match="systemd does not run here"):
        module.restart(docker.ENGINE, Intent(config=path))
    assert sent == []
    monkeypatch.setattr(os, "readlink", lambda _: "/usr/sbin/dockerd (deleted)")
    assert "was told" in module.restart(docker.ENGINE, Intent(config=path))
    assert sent == [(os.getpid(), signal.SIGHUP)]
