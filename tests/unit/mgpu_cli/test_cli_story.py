"""`mgpu events` and `mgpu logs`, and the names that engines have for containers in all that is shown."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mgpu_cli import logs, names
from native_sched.daemon.log import Log
from oci_specs import schemas
from tests.unit.cli_support import ID, FakeMgpud, at, card, container, event, list_reply, mgpu

OK = {"version": 1, "ok": True}
OTHER = "fedcba9876543210"


def told(fake: FakeMgpud, *events: dict[str, Any]) -> None:
    reply = {**OK, "next": 10, "events": list(events)}
    fake.reply_to("watch", schemas.validate("control#watch-reply", reply), {**reply, "events": []})


def test_events_have_a_line_each(mgpud: FakeMgpud) -> None:
    told(mgpud, event(1, minutes_ago=20), event(2, OTHER, pod="web-0"))
    first, second = mgpu("events").output.splitlines()
    assert first.endswith("  GPUMemoryEvicted  0123456789ab  64 MiB of GPU memory were moved")
    assert second.endswith("  GPUMemoryEvicted  shop/web-0/main  64 MiB of GPU memory were moved")
    assert mgpud.asked == [{"version": 1, "verb": "watch", "since": 0}]


@pytest.mark.parametrize(
    "wanted", ["web-0", "shop/web-0", "web-0/main", "shop/web-0/main", OTHER, OTHER[:4]]
)
def test_events_of_one_container(mgpud: FakeMgpud, wanted: str) -> None:
    told(mgpud, event(1), event(2, OTHER, pod="web-0"))
    assert json.loads(mgpu("events", wanted, "-o", "json").output)["number"] == 2


def test_container_that_bears_the_name_of_a_pod_hides_nothing_of_it(
    mgpud: FakeMgpud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(names, "_docker", lambda: {ID: "web-0"})
    told(mgpud, event(1), event(2, OTHER, pod="web-0"))
    assert len(mgpu("events", "web-0", "-o", "json").output.splitlines()) == 2


@pytest.mark.parametrize("since", ["10m", ""])
def test_events_since_a_time(mgpud: FakeMgpud, since: str) -> None:
    told(mgpud, event(1, minutes_ago=20), event(2, minutes_ago=5))
    assert json.loads(mgpu("events", "--since", since or at(10), "-o", "json").output)["number"] == 2


def test_time_that_is_none_is_refused(mgpud: FakeMgpud) -> None:
    refused = mgpu("events", "--since", "yesterday")
    assert refused.exit_code == 2
    assert "'yesterday' is neither as 10m, 2h or 1d nor as 2026-01-02T03:04:05Z" in refused.output


def following(root: Path, *args: str) -> subprocess.Popen[str]:
    argv = [sys.executable, "-c", "from mgpu_cli.main import main; main()", *args, "--follow"]
    env = {**os.environ, "MGPU_ROOT": str(root)}
    return subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True)


def line_of(command: subprocess.Popen[str]) -> str:
    assert command.stdout is not None
    return command.stdout.readline()


def test_follow_goes_on_with_what_comes(mgpud: FakeMgpud, tmp_path: Path) -> None:
    first, second = ({**OK, "next": at, "events": [event(at)]} for at in (1, 2))
    mgpud.reply_to("watch", first, second, {**OK, "next": 3, "events": []})
    with following(tmp_path, "events", "-o", "json") as command:
        assert [json.loads(line_of(command))["number"] for _ in (1, 2)] == [1, 2]
        command.send_signal(signal.SIGINT)
    assert command.returncode == 0
    assert [each["since"] for each in mgpud.asked[:2]] == [0, 1]


def write_log(path: Path, form: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    with path.open("ab") as file:
        log = Log(file.fileno(), form=form)
        log.info("serving", cards=2)
        log.warning(
            "not-evicted", container=OTHER, pod="web-0", namespace="shop", name="main", why='a "b" c'
        )
        log.info("evicted", container=ID, mib=64)
        file.write(b"ready\n")


@pytest.mark.parametrize("form", ["text", "json"])
def test_logs_of_one_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    monkeypatch.setenv("MGPU_ROOT", str(tmp_path))
    write_log(tmp_path / "log" / "mgpud.log", form)
    assert len(mgpu("logs").output.splitlines()) == 4
    for wanted in ("web-0", OTHER[:6], "shop/web-0/main"):
        [line] = mgpu("logs", wanted).output.splitlines()
        found = json.loads(mgpu("logs", wanted, "-o", "json").output)
        assert logs.fields(line) == found
        assert (found["event"], found["why"]) == ("not-evicted", 'a "b" c')
    assert len(mgpu("logs", "--since", "1m").output.splitlines()) == 3
    assert mgpu("logs", "--since", "2100-01-01").output == ""


def test_logs_follow_the_file(tmp_path: Path) -> None:
    path = tmp_path / "log" / "mgpud.log"
    write_log(path, "text")
    with following(tmp_path, "logs", ID) as command:
        assert "event=evicted" in line_of(command)
        write_log(path, "text")
        assert "event=evicted" in line_of(command)
        command.send_signal(signal.SIGINT)
    assert command.returncode == 0


def test_logs_are_the_journals_without_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MGPU_ROOT", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    refused = mgpu("logs")
    assert refused.exit_code == 1
    assert refused.stderr.startswith(f"mgpu: there is no {tmp_path}/log/mgpud.log, and no journalctl; ")
    program = tmp_path / "bin" / "journalctl"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho time=2026-01-01T00:00:00Z event=serving args=$#\n")
    program.chmod(0o755)
    assert json.loads(mgpu("logs", "-o", "json").output)["event"] == "serving"


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A dockerd whose one container is called job."""
    body = json.dumps([{"Id": ID, "Names": ["/job"]}]).encode()
    reply = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "docker.sock"))
        listener.listen()

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    assert connection.recv(4096).startswith(b"GET /containers/json?all=1 ")
                    connection.sendall(reply)

        thread = threading.Thread(target=serve)
        thread.start()
        monkeypatch.setattr(names, "_docker", ENGINES[0])
        monkeypatch.setattr(names, "_known", {})
        monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
        yield
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


ENGINES = names._docker, names._podman


def test_what_docker_calls_a_container_is_shown_and_understood(mgpud: FakeMgpud, docker: None) -> None:
    both = [container(), container(container_id=OTHER, pod="web-0", namespace="shop", container="main")]
    mgpud.reply_to("list", list_reply(both, [card()]))
    assert [line.split()[-1] for line in mgpu("ps").output.splitlines()[1::2]] == ["job", "shop/web-0/main"]
    assert json.loads(mgpu("describe", "job", "-o", "json").output)["container_id"] == ID
    told(mgpud, event(1), event(2, OTHER))
    assert [line.split()[3] for line in mgpu("events").output.splitlines()] == ["job", OTHER[:12]]
    no = {"code": "no-such-container", "message": "m", "hint": "h"}
    mgpud.reply_to("set", {**OK, "ok": False, "error": no}, {**OK, "container": container()})
    assert mgpu("set", "job", "--core", "30").exit_code == 0
    assert [each["container"] for each in mgpud.asked if each["verb"] == "set"] == ["job", ID]


def test_podman_is_asked_where_it_has_containers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "podman"
    program.write_text(f"#!/bin/sh\necho {OTHER} their-job\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(names, "PODMAN_STATE", tmp_path)
    assert ENGINES[1]() == {OTHER: "their-job"}
    monkeypatch.setattr(names, "PODMAN_STATE", tmp_path / "none")
    assert ENGINES[1]() == {}


@pytest.mark.parametrize(
    "command", ["ps", "describe 0123", "devices", "policy", "events", "set 0123 --core 1"]
)
def test_json_is_as_the_schema_that_help_names(mgpud: FakeMgpud, command: str) -> None:
    told(mgpud, event(1))
    mgpud.reply_to("list", list_reply([container()], [card()]))
    mgpud.reply_to("set", {**OK, "container": container()})
    row = {"index": 0, "policy": "fixed-share", "owner": "node", "tenants": []}
    mgpud.reply_to("policy", {**OK, "cards": [row]})
    described = " ".join(mgpu(command.split()[0], "--help").output.split())
    [(part, name)] = re.findall(r"json: (?:(\S+) of )?oci_specs/schemas/(\w+)\.schema\.json", described)
    found = json.loads(mgpu(*command.split(), "-o", "json").output)
    if part:
        found = {**OK, "cards": found} if part == "policy-reply" else {**OK, "next": 2, "events": [found]}
        schemas.validate(f"{name}#{part}", found)
    else:
        for each in found if isinstance(found, list) else [found]:
            schemas.validate(name, each)
