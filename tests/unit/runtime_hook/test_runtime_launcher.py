"""mgpu-runtime's launcher: which verbs go straight to runc, its config, and what it says when it cannot
start.
"""

import json
import os
from pathlib import Path

import pytest

from tests.create_path import Node, one_line, program, write_script
from tests.support.commands import attempt, run

pytestmark = pytest.mark.usefixtures("create_path_programs")


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """runc and python are scripts that print their own name and arguments, one a line."""
    runc = write_script(tmp_path / "runc", 'echo runc; printf "%s\\n" "$@"')
    node = Node(tmp_path, runc)
    keys = {
        "runtime": runc,
        "socket": str(node.socket),
        "hook": "/opt/mgpu/libexec/mgpu/mgpu-hook",
        "python": write_script(tmp_path / "python", 'echo python; printf "%s\\n" "$@"'),
        "main": "/opt/mgpu/main.py",
    }
    node.write_conf(**keys)
    return node


def words(node: Node, *arguments: str) -> list[str]:
    return run(node.script, *arguments).splitlines()


@pytest.mark.parametrize(
    "arguments",
    [
        "--version",
        "",
        "state c1",
        "delete --force c1",
        "--root /r --log /dev/null --log-format json delete --force c1",
        "--root=/r --systemd-cgroup kill c1 9",
        "--debug exec create",
        "--log create start c1",
        "-root create -log=run state c1",
        "--criu run --rootless create events c1",
        "--cgroup-manager create --log-level run list",
        "-- state create",
        "create --help",
        "run -h",
        "--unknown state c1",
        "--unknown=create state c1",
        "--root",
        "-",
        "creat c1",
        "create2 c1",
        "help create",
    ],
)
def test_other_verbs_go_to_runc_as_they_came(node: Node, arguments: str) -> None:
    assert words(node, *arguments.split()) == ["runc", *(arguments.split() or [""])]


@pytest.mark.parametrize(
    ("arguments", "verb", "log"),
    [
        ("create c1", 1, ""),
        ("run --bundle /b c1", 1, ""),
        ("--root /r --log /l --log-format json create --bundle /b --pid-file /p c1", 7, "/l"),
        ("--root=/r --log=/l --systemd-cgroup create c1", 4, "/l"),
        ("-root /r -log=/l run c1", 4, "/l"),
        ("--log /a --log /b create c1", 5, "/b"),
        ("--log create create c1", 3, "create"),
        ("-- create c1", 2, ""),
        ("--debug -- run c1", 3, ""),
        ("--unheard-of create c1", 2, ""),
        ("--unheard-of value create c1", 3, ""),
        ("--unheard-of=value create c1", 2, ""),
        ("create --pid-file --help c1", 1, ""),
        ("create", 1, ""),
        ("precreate", 1, ""),
    ],
)
def test_create_and_run_go_to_python(node: Node, arguments: str, verb: int, log: str) -> None:
    assert words(node, *arguments.split()) == [
        "python",
        "-ISs",
        "/opt/mgpu/main.py",
        f"--socket={node.socket}",
        "--hook=/opt/mgpu/libexec/mgpu/mgpu-hook",
        f"--log={log}",
        f"--verb={verb}",
        "--",
        str(node.root / "runc"),
        *arguments.split(),
    ]


def test_arguments_are_carried_whatever_their_bytes(node: Node) -> None:
    odd = ["exec", "c1", "sh", "-c", "echo 'a b' \"c\" ü", ""]
    assert words(node, *odd) == ["runc", *odd]


BAD_CONFIGS = [
    ("runtime", 'line 1: "runtime" has no value in double quotes'),
    ('runtime = "', 'line 1: "runtime" has no value in double quotes'),
    ("runtime = runc", 'line 1: "runtime" has no value in double quotes'),
    ('runtime = "runc" x', 'line 1: "runtime" has no value in double quotes'),
    ('runtime "runc"', 'line 1: "runtime" has no value in double quotes'),
    (r'runtime = "a\nb"', 'line 1: "runtime" has no value in double quotes'),
    ('runtime = "/' + "a" * 5000 + '"', 'line 1: "runtime" has no value in double quotes'),
    ('runtime = ""', 'line 1: "runtime" is not an absolute path'),
    ('runtime = "bin/runc"', 'line 1: "runtime" is not an absolute path'),
    ('socket = "mgpud.sock"', 'line 1: "socket" is not an absolute path'),
    ('# fine\n\nruntme = "runc"', 'line 3: unknown key "runtme"'),
    ('= "runc"', 'line 1: unknown key ""'),
    ('[section]\nruntime = "runc"', 'line 1: unknown key "[section]"'),
    ('runtime = "runc"\nruntime = "crun"', 'line 2: "runtime" is given twice'),
    ('runtime = "runc"\0', "line 1: not a text file"),
]


@pytest.mark.parametrize(("text", "what"), BAD_CONFIGS)
def test_bad_config_is_one_line(node: Node, text: str, what: str) -> None:
    node.conf.write_text(text)
    done = node.run("state", "c1")
    assert done.returncode == 1
    line = f'mgpu: {node.conf} {what}; each line is key = "value"; '
    assert one_line(done.stderr).startswith(line)
    assert node.logged() == [done.stderr.strip()]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# only a comment",
        "  \t\r\n",
        'runtime="runc"# comment',
        '\truntime = "runc"\r\n# end',
        'seccomp_socket = "/run/a \\"b\\" \\\\ # c"',
    ],
)
def test_config_forms(node: Node, text: str) -> None:
    node.conf.write_text(text)
    assert run(node.script, "state", env={"PATH": str(node.root)}) == "runc\nstate\n"


def test_config_missing(node: Node) -> None:
    node.conf.unlink()
    done = node.run("delete", "c1")
    assert done.returncode == 1
    hint = "install mgpu again, or give --mgpu-config=FILE"
    expected = f"mgpu: mgpu-runtime cannot read its config {node.conf}: No such file or directory; {hint}"
    assert one_line(done.stderr) == expected
    assert node.logged() == [expected]


def test_config_too_large(node: Node) -> None:
    node.conf.write_text("#" * 40000)
    assert "File too large" in one_line(node.run("state", "c1").stderr)


@pytest.mark.parametrize("key", ["python", "main", "socket", "hook"])
def test_create_needs_all_keys_and_delete_does_not(node: Node, key: str) -> None:
    lines = node.conf.read_text().splitlines(keepends=True)
    node.conf.write_text("".join(line for line in lines if not line.startswith(key)))
    assert f'mgpu: "{key}" is not set in {node.conf}; ' in one_line(node.run("create", "c1").stderr)
    assert node.run("delete", "c1").returncode == 0


def test_python_missing(node: Node) -> None:
    (node.root / "python").unlink()
    done = node.run("create", "c1")
    assert done.returncode == 1
    assert f"cannot start python {node.root}/python, set in {node.conf}: No such file" in one_line(
        done.stderr
    )
    assert node.logged() == [done.stderr.strip()]


def test_runtime_missing(node: Node) -> None:
    node.write_conf(runtime="/nowhere/runc")
    line = one_line(node.run("state", "c1").stderr)
    assert line.startswith("mgpu: the runtime /nowhere/runc is not there or not executable; ")
    node.write_conf(runtime="no-such-runtime")
    assert one_line(node.run("state", "c1").stderr).startswith(
        'mgpu: no runtime "no-such-runtime" in PATH; '
    )


def test_runtime_is_a_folder(node: Node) -> None:
    node.write_conf(runtime=str(node.root))
    assert "not executable" in one_line(node.run("state", "c1").stderr)


@pytest.mark.parametrize("way", ["binary", "script", "symlink"])
def test_runtime_that_is_mgpu_runtime(node: Node, way: str) -> None:
    link = node.root / "link"
    link.symlink_to(node.script)
    target = {"binary": program("mgpu-runtime"), "script": str(node.script), "symlink": str(link)}[way]
    node.write_conf(runtime=target)
    line = one_line(node.run("state", "c1").stderr)
    assert line.startswith(f"mgpu: the runtime {target} is mgpu-runtime itself; ")


def test_runc_in_path_that_is_mgpu_runtime_is_passed_over(node: Node) -> None:
    """As under the shim, which puts mgpu-runtime first in PATH under the name of runc."""
    shadow, real = node.root / "shadow", node.root / "real"
    shadow.mkdir()
    real.mkdir()
    (shadow / "runc").symlink_to(node.script)
    node.write_conf(runtime="runc")
    done = node.run("state", env={"PATH": f"relative::{shadow}:{real}"})
    assert done.returncode == 1
    assert 'no runtime "runc" in PATH other than mgpu-runtime itself' in one_line(done.stderr)
    write_script(real / "runc", "echo real")
    assert node.run("state", env={"PATH": f"relative::{shadow}:{real}"}).stdout == "real\n"


def test_called_as_a_program(node: Node) -> None:
    """Without a script around it: its own option is still the first, and the config's default place is in
    /etc.
    """
    launcher = program("mgpu-runtime")
    named = [launcher, f"--mgpu-config={node.conf}"]
    assert run(*named) == "runc\n\n"
    if not os.path.exists("/etc/mgpu/runtime.conf"):
        bare = attempt(launcher, "state")
        assert "/etc/mgpu/runtime.conf" in one_line(bare.err)


@pytest.mark.parametrize("log", ["/dev/stderr", "/nowhere/log", ""])
def test_log_that_is_stderr_or_cannot_be_written(node: Node, log: str) -> None:
    node.conf.unlink()
    done = attempt(node.script, "--log", log, "state")
    one_line(done.err)


def test_podman_puts_the_runtimes_name_before_it(node: Node) -> None:
    node.conf.unlink()
    log = node.root / "oci-log"
    argv = [str(node.script), "--log", str(log), "state", "c1"]
    done = attempt(*argv)
    assert f"mgpu: {json.loads(log.read_text())['msg']}\n" == done.err


def test_log_is_appended_to_and_valid_json(node: Node) -> None:
    node.log.write_text(json.dumps({"level": "error", "msg": "before"}) + "\n")
    node.conf.write_text('run"ti\\me\x01 = ""')
    done = node.run("state", "c1")
    assert r'unknown key "run"ti\me\x01"' in one_line(done.stderr)
    assert node.logged() == ["before", done.stderr.strip()]
    assert json.loads(node.log.read_text().splitlines()[1])["time"].endswith("Z")
