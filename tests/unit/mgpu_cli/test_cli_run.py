import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from mgpu_cli import policies
from oci_specs.forms import FORMS

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root")

# Stands for mgpu-runtime: keeps what it was given, writes to the root file system, ends as told.
RUNTIME = """#!/bin/sh
test "$3" = run || echo "$3" >> {seen}/verbs
test "$3" != kill || kill -9 $(cat {seen}/pid)
test "$3" = run || exit 0
echo $$ > {seen}/pid
{start}
echo "$@" > {seen}/argv
cp "$5/config.json" {seen}/config.json
echo changed > "$5/rootfs/file"
cat "$5/rootfs/file" "$5/rootfs/kept"
{end}
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "state" / "bin").mkdir(parents=True)
    (tmp_path / "seen").mkdir()
    rootfs = tmp_path / "root,fs:1"
    rootfs.mkdir()
    (rootfs / "file").write_text("original\n")
    (rootfs / "kept").write_text("kept\n")
    return tmp_path


def runtime(root: Path, end: str = "exit 0", start: str = 'echo $$ > "$7"') -> None:
    script = root / "state" / "bin" / "mgpu-runtime"
    script.write_text(RUNTIME.format(seen=root / "seen", end=end, start=start))
    script.chmod(0o700)


def mgpu_run(
    root: Path, *options: str, rootfs: Path | None = None, command: Sequence[str] = ("prog", "--flag", "-x")
) -> subprocess.CompletedProcess[str]:
    with started(root, *options, rootfs=rootfs, command=command) as process:
        out, err = process.communicate(timeout=60)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def started(
    root: Path, *options: str, rootfs: Path | None = None, command: Sequence[str] = ("prog", "--flag", "-x")
) -> subprocess.Popen[str]:
    # A process of its own: `mgpu run` moves into a mount namespace.
    program = [sys.executable, "-c", "from mgpu_cli.main import main; main()"]
    argv = [
        *program,
        "run",
        "--root",
        str(root / "state"),
        *options,
        str(rootfs or root / "root,fs:1"),
        *command,
    ]
    (root / "tmp").mkdir(exist_ok=True)
    environment = os.environ | {"TMPDIR": str(root / "tmp")}
    return subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        process_group=0,
    )


def seen(root: Path) -> dict[str, Any]:
    spec: dict[str, Any] = json.loads((root / "seen" / "config.json").read_text())
    return spec


@needs_root
def test_options_become_annotations_and_the_rootfs_stays_as_it_is(root: Path) -> None:
    runtime(root)
    options = "--memory-mib 4096 --gpus 2 --core 50 --policy fixed-share --class offline --name c1"
    result = mgpu_run(root, *options.split(), "--env", "A=b=c", "--annotation", "aliyun.com/gpu-mem=8")
    assert (result.returncode, result.stdout, result.stderr) == (0, "changed\nkept\n", "")
    assert (root / "root,fs:1" / "file").read_text() == "original\n"
    assert seen(root)["annotations"] == {
        "aliyun.com/gpu-mem": "8",
        "mgpu.dev/memory-mib": "4096",
        "mgpu.dev/gpus": "2",
        "mgpu.dev/core": "50",
        "mgpu.dev/policy": "fixed-share",
        "mgpu.dev/qos": "offline",
    }
    process = seen(root)["process"]
    assert process["args"] == ["prog", "--flag", "-x"]
    assert "A=b=c" in process["env"]
    assert process["terminal"] is False
    assert f"--root {root}/state/runc run --bundle" in (root / "seen" / "argv").read_text()
    assert list((root / "tmp").iterdir()) == []


@needs_root
@pytest.mark.parametrize(("end", "status"), [("exit 7", 7), ("kill -9 $$", 137)])
def test_status_is_passed_on_and_nothing_stays(root: Path, end: str, status: int) -> None:
    runtime(root, end)
    assert mgpu_run(root).returncode == status
    assert list((root / "tmp").iterdir()) == []
    assert str(root / "tmp") not in Path("/proc/self/mounts").read_text()


@needs_root
def test_no_container_is_told_apart_from_a_command_that_fails(root: Path) -> None:
    runtime(root, "exit 1", start="")
    assert mgpu_run(root).returncode == 125
    runtime(root, "exit 1")
    assert mgpu_run(root).returncode == 1


def test_name_in_use_is_refused_and_that_container_left_alone(root: Path) -> None:
    runtime(root)
    (root / "state" / "runc" / "taken").mkdir(parents=True)
    result = mgpu_run(root, "--name", "taken")
    assert result.returncode == 125
    assert result.stderr.startswith('mgpu: a container called "taken" exists; ')
    assert not (root / "seen" / "argv").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--memory-mib 100", '--memory-mib is "100"; allowed: '),
        ("--memory-mib 4097 --gpus 2", '--memory-mib "4097" does not divide evenly over 2 '),
        ("--core 101", '--core "101" is more than one '),
        ("--gpus none", '--gpus is "none"; allowed: '),
    ],
)
def test_refusal_names_the_option_that_was_written(root: Path, options: str, said: str) -> None:
    runtime(root)
    result = mgpu_run(root, *options.split())
    assert result.returncode == 125
    assert result.stderr.startswith(f"mgpu: {said}")
    assert result.stderr.count("\n") == 1
    assert not (root / "seen" / "argv").exists()


def test_run_without_mgpu_up_fails_with_one_line(root: Path) -> None:
    result = mgpu_run(root)
    assert (result.returncode, result.stdout) == (125, "")
    assert result.stderr.startswith(f"mgpu: there is no {root}/state/bin/mgpu-runtime; start mgpu up")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "bad",
    [
        ("--env", "A"),
        ("--annotation", "=x"),
        ("--memory-mib", "much"),
        ("--class", "x"),
        ("--memory", "400"),
        ("--policy", "unfair"),
    ],
)
def test_bad_options_are_usage_errors(root: Path, bad: tuple[str, str]) -> None:
    result = mgpu_run(root, *bad)
    assert result.returncode == 2
    assert bad[0] in result.stderr
    assert "Traceback" not in result.stderr


def test_policy_takes_all_names_that_the_annotation_takes() -> None:
    form = FORMS["policy"]
    names = [*policies.NAMES, *policies.OTHER_NAMES]
    assert set(names) == set(re.split(", | or ", form.allowed))
    assert {form.read(name) for name in names} == set(policies.NAMES)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def verbs(root: Path) -> list[str]:
    told = root / "seen" / "verbs"
    return told.read_text().split() if told.exists() else []


@needs_root
def test_run_removes_leftovers_of_a_killed_run(root: Path) -> None:
    runtime(root, "exec sleep 60")
    with started(root) as process:
        until((root / "seen" / "config.json").exists)
        process.kill()
    until(lambda: verbs(root) == ["delete"] and not list((root / "tmp").iterdir()))
    assert gone(int((root / "seen" / "pid").read_text()))


@needs_root
def test_second_interrupt_kills(root: Path) -> None:
    runtime(root, "trap '' INT; echo deaf; sleep 60 & wait")
    with started(root) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        while process.stdout.readline() != "deaf\n":
            pass
        os.kill(process.pid, signal.SIGINT)
        assert process.stderr.readline() == "mgpu: ^C once more kills the container\n"
        assert verbs(root) == []
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(20) == 137
        # What the container has left behind, if it has not gone by itself.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert verbs(root) == ["kill", "delete"]


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@needs_root
@pytest.mark.skipif(shutil.which("runc") is None, reason="runc is not installed")
def test_runc_takes_the_spec(root: Path) -> None:
    """The host's own root file system is enough to run a command over."""
    script = root / "state" / "bin" / "mgpu-runtime"
    script.write_text('#!/bin/sh\nexec runc "$@"\n')
    script.chmod(0o700)
    inside = "echo $A; cat /proc/self/status; ls /dev; ls /sys/class/net; rm -rf /etc/debian_version; exit 3"
    result = mgpu_run(root, "--env", "A=b", rootfs=Path("/"), command=["sh", "-c", inside])
    assert result.returncode == 3, result.stderr
    lines = result.stdout.split("\n")
    assert lines[0] == "b"
    assert "CapEff:\t00000000a80425fb" in lines
    assert "NoNewPrivs:\t1" in lines
    assert {"null", "lo"} <= set(lines)
    assert not {"sda", "vda", "eth0"} & set(lines)
    assert list((root / "state" / "runc").iterdir()) == []


@needs_root
@pytest.mark.skipif(shutil.which("runc") is None, reason="runc is not installed")
def test_container_of_runc_ends_with_a_killed_mgpu_run(root: Path) -> None:
    script = root / "state" / "bin" / "mgpu-runtime"
    script.write_text('#!/bin/sh\nexec runc "$@"\n')
    script.chmod(0o700)
    runc_root = root / "state" / "runc"
    with started(
        root, "--name", "c1", rootfs=Path("/"), command=["sh", "-c", "echo up; sleep 60"]
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        init = json.loads((runc_root / "c1" / "state.json").read_text())["init_process_pid"]
        process.kill()
    until(lambda: gone(init) and not list(runc_root.iterdir()) and not list((root / "tmp").iterdir()))
