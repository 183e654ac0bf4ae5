import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mgpu_cli import runtime_files
from mgpu_cli.state import StateDir
from oci_specs.refusal import Refusal
from tests.support.commands import attempt


def test_create_makes_a_private_directory_and_is_repeatable(tmp_path: Path) -> None:
    state = StateDir(tmp_path / "a" / "b")
    state.create()
    state.create()
    assert state.path.stat().st_mode & 0o777 == 0o700
    assert all(below.is_dir() for below in (state.sim, state.cdi, state.log, state.runtime.parent))


@pytest.mark.parametrize("name", ["x" * 93, 'q"q', "b\\b", "n\nn", "e\x1be"])
def test_names_that_cannot_work_are_refused_before_anything_is_made(tmp_path: Path, name: str) -> None:
    with pytest.raises(Refusal) as refused:
        StateDir(tmp_path / name).create()
    assert "\n" not in refused.value.line()
    assert list(tmp_path.iterdir()) == []


def test_longest_socket_of_the_longest_name_can_be_bound() -> None:
    room = 107 - len("/sim/admin.sock")
    state = StateDir(Path("/" + "x" * (room - 1)))
    assert max(len(os.fsencode(path)) for path in state.sockets) == 107
    with pytest.raises(Refusal, match="leave room for 92"):
        StateDir(Path("/" + "x" * room)).create()


def test_directory_others_can_write_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(Refusal, match="can be written by other users"):
        StateDir(tmp_path).create()


def test_file_in_the_way_is_said(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    with pytest.raises(Refusal, match="cannot make the state directory"):
        StateDir(tmp_path / "f").create()


HOLD = """
import sys
from pathlib import Path
from mgpu_cli.state import StateDir
with StateDir(Path(sys.argv[1])).lock():
    print("held", flush=True)
    sys.stdin.read()
"""


def test_state_directory_has_a_single_supervisor(tmp_path: Path) -> None:
    state = StateDir(tmp_path)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with (
            pytest.raises(Refusal, match=rf"another mgpu up \(pid {holder.pid}\) already serves"),
            state.lock(),
        ):
            pass
        holder.kill()
    with state.lock():
        pass


def test_directory_that_a_holder_serves_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mgpu_cli.state._HOLDER_ENDS_S", 0.0)
    state = StateDir(tmp_path)
    with (tmp_path / "seccomp.sock.lock").open("w+") as lock:
        lock.write("4711\n")
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(Refusal, match=r"another mgpu-holder \(pid 4711\) already serves"), state.lock():
            pass
    with state.lock():
        pass


def test_remove_sockets_takes_what_a_killed_supervisor_left(tmp_path: Path) -> None:
    state = StateDir(tmp_path)
    state.create()
    for path in state.sockets:
        path.touch()
    state.remove_sockets()
    assert not any(path.exists() for path in state.sockets)


def test_first_line_of_the_runtime_fits_what_the_kernel_reads(tmp_path: Path) -> None:
    state = StateDir(tmp_path)
    tail = f" --mgpu-config={state.runtime_conf}\n"
    longest = "/" + "l" * (255 - len("#!/") - len(tail))
    line = runtime_files.shebang(longest, state)
    assert len(line) == 255
    assert line == f"#!{longest}{tail}".encode()
    with pytest.raises(Refusal, match="256 bytes long"):
        runtime_files.shebang(longest + "l", state)
    with pytest.raises(Refusal, match="no space"):
        runtime_files.shebang("/opt/my gpu/mgpu-runtime", state)


def test_kernel_hands_over_the_config_as_one_argument(tmp_path: Path) -> None:
    state = StateDir(tmp_path / "with space")
    state.create()
    launcher = tmp_path / "launcher"
    launcher.symlink_to("/usr/bin/printf")
    state.runtime.write_bytes(runtime_files.shebang(str(launcher), state))
    state.runtime.chmod(0o700)
    # printf takes the option as its format; what matters is that it arrives whole.
    said = attempt(state.runtime)
    assert f"--mgpu-config={state.runtime_conf}" in said.err + said.out


def test_launcher_below_a_path_with_a_space_is_started_by_a_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher = tmp_path / "my gpu" / "mgpu-runtime"
    launcher.parent.mkdir()
    launcher.symlink_to("/usr/bin/printf")
    monkeypatch.setattr("oci_specs.paths.libexec", lambda _: str(launcher))
    state = StateDir(tmp_path / "state")
    state.create()
    for _ in range(2):
        runtime_files.write(state, "runc")
        said = attempt(state.runtime)
        assert f"--mgpu-config={state.runtime_conf}" in said.err + said.out


def test_runtime_below_is_on_path_or_crios(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = StateDir(tmp_path)
    beside, crun = tmp_path / "crio", tmp_path / "crio" / "crun"
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(runtime_files, "CRIOS_FOLDER", str(beside))
    with pytest.raises(Refusal, match='the OCI runtime "crun" is not installed'):
        runtime_files.conf(state, "crun")
    beside.mkdir()
    crun.touch(mode=0o755)
    assert runtime_files.conf(state, "crun").startswith(f'runtime = "{crun}"\n')
