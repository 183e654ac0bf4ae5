import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from mgpu_cli import describe, render
from mgpu_cli.main import main
from oci_specs import schemas
from oci_specs.refusal import Refusal
from tests.unit.cli_support import CARD_UUIDS, FakeMgpud, card, container, list_reply, mgpu


@pytest.fixture
def mgpud(mgpud: FakeMgpud) -> FakeMgpud:
    show(mgpud, [container()])
    return mgpud


def show(fake: FakeMgpud, containers: list[dict[str, Any]]) -> None:
    fake.reply(schemas.validate("control#list-reply", list_reply(containers, [card()])))


def rows(output: str) -> list[list[str]]:
    return [line.split() for line in output.splitlines()]


def test_ps_shows_each_card_of_a_container_on_its_own_line(mgpud: FakeMgpud) -> None:
    result = mgpu("ps")
    assert result.exit_code == 0
    heading, first, second = rows(result.output)
    assert heading == rows("CONTAINER GPU USED/CAP MiB CORE% CLASS POLICY STATE AGE NAME")[0]
    assert first[:-2] == ["0123456789ab", "0", "512/4309", "-", "online", "fixed-share", "bound"]
    assert first[-1] == "-"
    assert second == ["1", "0/4309", "-"]


def test_ps_says_advisory_and_where_a_container_comes_from(mgpud: FakeMgpud) -> None:
    show(mgpud, [container(advisory=True, namespace="prod", pod="web-0", container="app", policy=None)])
    assert "bound, advisory" in mgpu("ps").output
    assert mgpu("ps").output.splitlines()[1].endswith("  prod/web-0/app")
    show(mgpud, [container(advisory=True, cards=[])])
    assert "bound, advisory" in mgpu("ps").output, "one without a GPU is there to be seen too"


def test_ps_wide_has_whole_ids_and_uuids(mgpud: FakeMgpud) -> None:
    show(mgpud, [container(claims=["team-a/half/7d3a/gpu"]), container(cards=[])])
    heading, first, second, bare = (line.split() for line in mgpu("ps", "-o", "wide").output.splitlines())
    assert heading[-4:] == ["GRANT", "PID", "CLAIM", "UUID"]
    assert first[0] == "0123456789abcdef"
    assert first[-4:] == ["g1", "4242", "team-a/half", CARD_UUIDS[0]]
    assert second[-1] == CARD_UUIDS[1]
    assert bare[-4:] == ["g1", "4242", "-", "-"]


def test_ps_watch_shows_them_again(mgpud: FakeMgpud, tmp_path: Path) -> None:
    argv = [sys.executable, "-c", "from mgpu_cli.main import main; main()", "ps", "--watch"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        for _ in range(2):
            assert watching.stdout.readline().startswith("CONTAINER")
            assert watching.stdout.readline().startswith("0123456789ab")
            watching.stdout.readline()
        watching.send_signal(signal.SIGINT)
    assert watching.returncode == 0


def test_ordinary_row_fits_80_columns_and_has_no_blanks_at_its_end(mgpud: FakeMgpud) -> None:
    show(mgpud, [container(pod=pod) for pod in (None, "web-0")])
    for command in (("ps",), ("describe", "web-0")):
        lines = mgpu(*command).output.splitlines()
        assert max(map(len, lines)) <= 80
        assert lines == [line.rstrip() for line in lines]


def on_a_terminal(columns: int, *args: str) -> str:
    """What a `mgpu` command prints on a terminal of so many columns."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    argv = [sys.executable, "-c", "from mgpu_cli.main import main; main()", *args]
    env = {**os.environ, "COLUMNS": str(columns), "TERM": "xterm"}
    with subprocess.Popen(argv, stdin=its, stdout=its, stderr=its, env=env):
        os.close(its)
        printed = b""
        # EIO is how a terminal's end looks on this side.
        with suppress(OSError):
            while data := os.read(ours, 65536):
                printed += data
    os.close(ours)
    return printed.decode().replace("\r\n", "\n")


@pytest.mark.parametrize("columns", [40, 80])
@pytest.mark.parametrize("command", [("ps",), ("devices",), ("describe", "0123")])
def test_tables_are_not_cut_on_a_narrow_terminal_or_in_a_pipe(
    mgpud: FakeMgpud, command: tuple[str, ...], columns: int
) -> None:
    show(mgpud, [container(pod="p" * 200, policy="guaranteed-burst-share")])
    assert on_a_terminal(columns, *command) == mgpu(*command).output
    said = mgpu("ps").output + mgpu("devices").output
    assert {"p" * 200, "guaranteed-burst-share", "512/4309", *CARD_UUIDS[:1]} <= set(said.split())


def test_names_cannot_command_the_terminal_or_the_table(mgpud: FakeMgpud) -> None:
    show(mgpud, [container(pod="[red]x\x1b[2J\nfake")])
    for command in (("ps",), ("describe", "0123")):
        output = mgpu(*command).output
        assert "[red]x\\x1b[2J\\nfake" in output
        assert "\x1b" not in output


def test_container_whose_grant_cannot_be_read_is_shown(mgpud: FakeMgpud) -> None:
    mgpud.reply({**list_reply([], []), "unreadable": ["run-681d2c3e"]})
    done = mgpu("ps")
    assert done.stdout == ""
    assert done.stderr == (
        "mgpu: run-681d2c3e: its grant cannot be read; end it, nothing new is admitted before\n"
    )


def test_empty_states_say_so(mgpud: FakeMgpud) -> None:
    mgpud.reply(list_reply([], []))
    assert mgpu("ps").output == "No container holds a GPU.\n"
    assert mgpu("devices").output == "This node has no GPUs.\n"
    assert json.loads(mgpu("ps", "-o", "json").output) == []
    show(mgpud, [container(processes=[])])
    assert "No process in it uses a GPU." in mgpu("describe", "0123").output


def test_json_is_the_protocols_own_objects(mgpud: FakeMgpud) -> None:
    assert json.loads(mgpu("ps", "-o", "json").output) == [container()]
    assert json.loads(mgpu("devices", "-o", "json").output) == [card()]
    assert json.loads(mgpu("describe", "0123", "-o", "json").output) == container()


def test_devices_shows_granted_and_used(mgpud: FakeMgpud) -> None:
    heading, row = rows(mgpu("devices").output)
    assert row == [
        "0",
        "Tesla",
        "V100-SXM2-16GB",
        "16160",
        "4309",
        "512",
        "1",
        "fixed-share",
        "-",
        CARD_UUIDS[0],
    ]
    assert heading[-1] == "UUID"


def test_describe_shows_caps_peaks_and_processes(mgpud: FakeMgpud) -> None:
    shown = rows(mgpu("describe", "0123456789abcdef").output)
    assert ["Container:", "0123456789abcdef"] in shown
    assert ["0", "4309", "512", "600", "-", CARD_UUIDS[0]] in shown
    assert ["4243", "0", "512"] in shown


def test_describe_says_how_long_calls_waited(mgpud: FakeMgpud) -> None:
    show(mgpud, [container(parked={"calls": 3, "ns": 1_500_000_000})])
    shown = [" ".join(row) for row in rows(mgpu("describe", "0123").output)]
    assert "Waited: 1.500 s in 3 calls, for memory that gives way" in shown
    show(mgpud, [container(parked={"calls": 0, "ns": 0})])
    assert "Waited:" not in mgpu("describe", "0123").output


def test_describe_shows_the_claims_that_a_container_has(mgpud: FakeMgpud) -> None:
    show(mgpud, [container(claims=["team-a/half/7d3a/gpu", "team-a/more/7d3b/gpu"])])
    shown = rows(mgpu("describe", "0123").output)
    assert [row for row in shown if row[:1] == ["Claim:"]] == [
        ["Claim:", "team-a/half"],
        ["Claim:", "team-a/more"],
    ]


@pytest.mark.parametrize("command", [("ps",), ("devices",), ("describe", "x")])
def test_command_without_mgpud_fails_with_one_line(tmp_path: Path, command: tuple[str, ...]) -> None:
    result = mgpu(*command, "--root", str(tmp_path))
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("mgpu: mgpud is not running")
    assert result.stderr.count("\n") == 1


def test_every_summary_is_whole_and_version_is_an_option_too() -> None:
    commands = mgpu("--help").output.partition("Commands:\n")[2]
    assert len(commands.splitlines()) == len(main.commands)
    assert "..." not in commands
    assert mgpu("--version").output.startswith("mgpu ")


def test_version_knows_no_build_of_an_older_mgpud(mgpud: FakeMgpud) -> None:
    said = {"pid": 7, "driver": "sim", "driver_version": "545.1", "cards": 2, "containers": 0}
    mgpud.reply({"version": 1, "ok": True, **said})
    done = mgpu("version")
    assert "mgpud   unknown, in unknown, pid 7, driver sim 545.1, 2 GPUs, 0 containers" in done.output


def test_version_without_mgpud_is_no_error(tmp_path: Path) -> None:
    result = mgpu("version", "--root", str(tmp_path))
    assert result.exit_code == 0
    assert f"not running at {tmp_path}/mgpud.sock" in result.output
    assert json.loads(mgpu("version", "--root", str(tmp_path), "-o", "json").output)["mgpud"] is None


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("aa", "aa"),
        ("aabb", "aabb"),
        ("c", "cc"),
        ("web-0", "cc"),
        ("app", "dd"),
        ("prod/web-1/app", "dd"),
        ("web-1/app", "dd"),
        ("prod/web-1", "dd"),
        ("prod/web-2", "ee"),
        ("prod/lone", "ff"),
        ("aabx", "ff2"),
        ("e\\x1bf", "gg"),
    ],
)
def test_describe_finds_by_id_start_and_names(wanted: str, found: str) -> None:
    assert describe.find(CROWD, wanted)["container_id"] == found


def test_describe_finds_whatever_ps_prints() -> None:
    for entry in CROWD:
        if printed := render.name(entry):
            assert describe.find(CROWD, printed) is entry


@pytest.mark.parametrize(
    ("wanted", "code"),
    [("a", "ambiguous"), ("zz", "no-such-container"), ("", "ambiguous"), ("prod", "no-such-container")],
)
def test_describe_refuses_none_and_several(wanted: str, code: str) -> None:
    with pytest.raises(Refusal) as refused:
        describe.find(CROWD, wanted)
    assert refused.value.code == code


CROWD = [
    container(container_id="aa", container="aa"),
    container(container_id="aabb", container="aabb"),
    container(container_id="cc", pod="web-0", container="c"),
    container(container_id="dd", namespace="prod", pod="web-1", container="app"),
    container(container_id="ee", namespace="prod", pod="web-2", container="ee"),
    container(container_id="ff", namespace="prod", container="lone"),
    # A name wins over an id that starts with it.
    container(container_id="ff2", pod="aabx", container="ff2"),
    container(container_id="aabx2", container="aabx2"),
    container(container_id="gg", pod="e\x1bf", container="gg"),
]


@pytest.mark.parametrize(
    ("created", "shown"),
    [
        ("2024-05-06T07:08:09Z", "0s"),
        ("2024-05-06T07:08:10Z", "0s"),
        ("2024-05-06T07:07:10Z", "59s"),
        ("2024-05-06T07:07:09Z", "1m"),
        ("2024-05-06T02:08:08-03:00", "2h"),
        ("2024-05-01T00:00:00.5Z", "5d"),
    ],
)
def test_age(created: str, shown: str) -> None:
    assert render.age(created, datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC)) == shown


@pytest.mark.parametrize(("size_bytes", "shown"), [(0, "0"), (1, "1"), (1 << 20, "1"), ((1 << 20) + 1, "2")])
def test_mib_never_rounds_use_away(size_bytes: int, shown: str) -> None:
    assert render.mib(size_bytes) == shown
