import os
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from mgpu_cli import client
from mgpu_cli.main import main
from oci_specs.refusal import Refusal
from tests.support.commands import attempt
from tests.unit.cli_support import fake_mgpud


def test_asks_one_versioned_packet_and_returns_the_reply(tmp_path: Path) -> None:
    with fake_mgpud(tmp_path / "s") as fake:
        fake.reply({"version": 1, "ok": True, "pid": 7})
        assert client.ask(tmp_path / "s", "health")["pid"] == 7
    assert fake.asked == [{"version": 1, "verb": "health"}]


def test_refusal_keeps_mgpuds_wording(tmp_path: Path) -> None:
    with fake_mgpud(tmp_path / "s") as fake:
        fake.reply({"version": 1, "ok": False, "error": {"code": "c-d", "message": "m", "hint": "h"}})
        with pytest.raises(Refusal) as refused:
            client.ask(tmp_path / "s", "list")
    assert (refused.value.code, refused.value.line()) == ("c-d", "mgpu: m; h")


@pytest.mark.parametrize(
    ("args", "line"),
    [
        (["--colour"], "mgpu: no such option '--colour'; see mgpu --help"),
        (
            ["ps", "-o", "yaml"],
            "mgpu: invalid value for '-o' / '--output': 'yaml' is not one of 'table', 'wide'",
        ),
        (["describe"], "mgpu: missing argument 'CONTAINER'; see mgpu describe --help"),
        (
            ["up", "--sim", "v100-16:1", "--node-config", "/nowhere"],
            "mgpu: invalid value for '--node-config': ",
        ),
        (["pss"], "mgpu: no such command 'pss'"),
    ],
)
def test_wrong_usage_is_said_in_one_line(args: list[str], line: str) -> None:
    done = CliRunner().invoke(main, args, prog_name="mgpu")
    assert done.exit_code == 2
    assert done.stderr.startswith(line)
    assert done.stderr.count("\n") == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_user_without_rights_reads_what_to_do(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    program = "import os, sys; os.setuid(65534); from mgpu_cli.main import main; main(sys.argv[1:])"
    argv = [sys.executable, "-c", f"from mgpu_cli import ps; {program}", "ps", "--root", str(tmp_path)]
    done = attempt(*argv)
    assert (done.status, done.out) == (1, "")
    said = f"mgpu: this user may not open {tmp_path}/mgpud.sock, which mgpu's commands ask; run the command as root"
    assert done.err.startswith(said)
    assert done.err.count("\n") == 1


@pytest.mark.parametrize("name", ["none", "dead", "x" * 120])
def test_hint_names_mgpu_up_and_root(tmp_path: Path, name: str) -> None:
    with fake_mgpud(tmp_path / "dead"):
        pass
    with pytest.raises(Refusal, match="mgpud is not running") as refused:
        client.ask(tmp_path / name, "list")
    assert "mgpu up" in refused.value.hint
    assert "--root" in refused.value.hint
