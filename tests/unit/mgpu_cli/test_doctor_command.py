"""mgpu doctor as a command: what it prints, its status, its time; and what it asks of the machine it runs
on."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from mgpu_cli.doctor import command, host, rm_table, syscalls
from mgpu_cli.doctor.examine import examine, worst
from mgpu_cli.doctor.finding import Finding, Group, Level, fail, note, ok, warn
from mgpu_cli.doctor.host import Host, NoAnswerError
from mgpu_cli.state import StateDir
from tests.support.commands import Done, attempt
from tests.support.places import MGPU
from tests.support.waiting import prompt, took_s
from tests.unit.doctor_support import Node


@pytest.fixture
def a_host(tmp_path: Path) -> Host:
    return Node(tmp_path).host()


def says(*findings: Finding) -> Group:
    return Group("group", (lambda _host: iter(findings),))


@pytest.mark.parametrize(
    ("findings", "status"),
    [
        ([], 0),
        ([ok("a", "x"), note("b", "y")], 0),
        ([ok("a", "x"), warn("b", "y")], 1),
        ([warn("a", "x"), fail("b", "y"), note("c", "z")], 2),
    ],
)
def test_status(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, findings: list[Finding], status: int
) -> None:
    monkeypatch.setattr(command, "examine", lambda host: examine(host, [says(*findings)]))
    done = CliRunner().invoke(command.doctor, ["--root", str(tmp_path)])
    assert done.exit_code == status


def test_json(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(command, "examine", lambda host: examine(host, [says(fail("a-b", "x", "y", "z"))]))
    done = CliRunner().invoke(command.doctor, ["--root", str(tmp_path), "-o", "json"])
    expected = {"group": "group", "id": "a-b", "level": "fail", "what": "x", "why": "y", "line": "z"}
    assert json.loads(done.stdout) == [expected]


def test_lines_are_not_broken_and_terminals_not_commanded() -> None:
    long = "sysctl -w " + "x" * 300
    shown = command.text(
        {"kernel": [fail("a", "what\x1b[2J", "why", long), ok("b", "fine", "unsaid")]}
    ).plain
    assert long in shown.splitlines()[2]
    assert "\x1b" not in shown
    assert "unsaid" not in shown


def test_check_that_fails_is_a_finding_and_hides_no_other(a_host: Host) -> None:
    def broken(_host: Host) -> Iterator[Finding]:
        yield ok("before", "x")
        raise ZeroDivisionError("nought")

    def after(_host: Host) -> Iterator[Finding]:
        yield ok("after", "x")

    found = examine(a_host, [Group("g", (broken, after))])["g"]
    assert [each.id for each in found] == ["before", "g-broken-failed", "after"]
    assert found[1].level is Level.WARN
    assert "nought" in found[1].what


def test_hanging_check_is_left_behind(a_host: Host) -> None:
    end = threading.Event()

    def hangs(_host: Host) -> Iterator[Finding]:
        yield ok("before", "x")
        end.wait(100)

    began = time.monotonic()
    found = examine(a_host, [Group("g", (hangs,)), says(ok("other", "x"))], deadline_s=2.0)
    assert time.monotonic() - began < 60, "it was waited for"
    end.set()
    assert [each.id for each in found["g"]] == ["before", "g-late"]
    assert [each.id for each in found["group"]] == ["other"]
    assert worst(found) is Level.WARN


@pytest.mark.parametrize("name", syscalls.NAMES)
def test_kernel_checks_pass_on_this_machine(name: str) -> None:
    assert syscalls.probe(name) == 0


def test_program_that_hangs_or_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Host(state=StateDir(Path("/nowhere")))
    with monkeypatch.context() as impatient:
        impatient.setattr(host, "TIMEOUT_S", 0.2)
        with pytest.raises(NoAnswerError, match=r"does not answer within 0\.2 s"):
            asked.run(["sleep", "5"])
    monkeypatch.setattr(host, "TIMEOUT_S", 60.0)
    with pytest.raises(NoAnswerError, match="No such file"):
        asked.run(["/nowhere/at-all"])
    with pytest.raises(NoAnswerError, match="because"):
        asked.run(["sh", "-c", "echo because >&2; exit 3"])
    assert asked.run(["echo", "x"]) == "x\n"


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (b"", "does not speak HTTP"),
        (b"220 hello\r\n", "does not speak HTTP"),
        (b"HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n", "answers 500"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{", "does not speak HTTP"),
        (None, "does not answer within"),
    ],
)
def test_docker_socket_without_dockerd_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reply: bytes | None, said: str
) -> None:
    monkeypatch.setattr(host, "TIMEOUT_S", 0.3 if reply is None else 60.0)
    answered = threading.Event()
    path = tmp_path / "d.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                if reply is None:
                    answered.wait(60)
                else:
                    connection.sendall(reply)

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(NoAnswerError, match=said):
            Host(state=StateDir(tmp_path)).get(str(path), "/info")
        answered.set()
        thread.join()


def test_on_this_machine_it_is_quick_and_changes_nothing(tmp_path: Path) -> None:
    root = tmp_path / "none"
    argv: list[str | Path] = [MGPU, "doctor", "--root", root, "-o", "json"]
    ended: list[Done] = []

    def examined() -> float:
        return took_s(lambda: ended.append(attempt(*argv)))

    # Two seconds, and what starting Python takes on a machine that does other things too.
    prompt(examined, "a look at this machine", within_s=4.0)
    done = ended[-1]
    found = json.loads(done.out)
    assert (done.status, done.err) == (2, "")
    silent = next(each for each in found if each["id"] == "start-mgpud")
    assert (silent["level"], silent["group"]) == ("fail", "start")
    assert not any(each["id"].endswith("-failed") for each in found), found
    assert not root.exists()


@pytest.mark.parametrize(
    ("version", "row"), [("580.95.05", "580.65"), ("550.54.14", "550.54"), ("470.1", ""), ("nonsense", "")]
)
def test_table_of_a_version(version: str, row: str) -> None:
    found = rm_table.row(version)
    assert (found.version, found.known.split(", ")[0]) == (row, "535.86")
