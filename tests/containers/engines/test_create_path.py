"""The create path on real runc and under a real containerd, with a mgpud that grants or refuses as the test
says.
"""

import array
import json
import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.create_path import NONCE, Answer, Mgpud, Node, grant, ok, one_line, refused, remove_programs
from tests.support import containerd
from tests.support.commands import Done, attempt
from tests.support.containerd import Containerd

pytestmark = pytest.mark.usefixtures("private_host")

# Prints what it has of NVIDIA, so that a container needs nothing but this one file.
SHOW_C = r"""
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

int main(int argc, char **argv)
{
    DIR *dev = opendir("/dev");
    struct dirent *entry;

    while (dev && (entry = readdir(dev)))
        if (strstr(entry->d_name, "nvidia"))
            printf("node %s\n", entry->d_name);
    for (char **variable = environ; *variable; variable++)
        printf("env %s\n", *variable);
    fflush(stdout);
    if (argc > 1 && strcmp(argv[1], "wait") == 0)
        pause();
    return 0;
}
"""


@pytest.fixture(scope="module")
def rootfs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("image")
    (folder / "show.c").write_text(SHOW_C)
    for name in ("rootfs", "rootfs/dev", "rootfs/proc", "rootfs/sys", "rootfs/etc"):
        (folder / name).mkdir()
    (folder / "rootfs/etc/passwd").write_text("root:x:0:0::/:/show\n")
    subprocess.run(["cc", "-O2", "-static", "-o", folder / "rootfs/show", folder / "show.c"], check=True)
    return folder / "rootfs"


@pytest.fixture(scope="module", autouse=True)
def programs() -> Iterator[None]:
    yield
    remove_programs()


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path, shutil.which("runc") or "runc", sanitized=False)


class Holder:
    """Takes listener file descriptors at path; metadata holds what came with each."""

    def __init__(self, path: Path) -> None:
        self.metadata: list[str] = []
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        self._listener.listen()
        self._thread = threading.Thread(target=self._serve)
        self._held: list[int] = []

    def __enter__(self) -> "Holder":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()
        for listener in self._held:
            os.close(listener)

    def _serve(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            with peer:
                data, ancillary, _, _ = peer.recvmsg(64 * 1024, socket.CMSG_SPACE(4))
                for _, _, payload in ancillary:
                    self._held += array.array("i", payload)
                self.metadata.append(json.loads(data)["metadata"])


class Bundle:
    """A container c1 of runc with a state folder of its own."""

    def __init__(self, node: Node, rootfs: Path) -> None:
        self.node = node
        self.path = node.root / "bundle"
        self.path.mkdir()
        subprocess.run(["runc", "spec", "--bundle", self.path], check=True)
        self.spec: dict[str, Any] = json.loads((self.path / "config.json").read_text())
        self.spec["root"] = {"path": str(rootfs), "readonly": False}
        self.spec["process"] |= {"terminal": False, "args": ["/show"], "env": ["PATH=/"]}
        self.spec["linux"]["namespaces"] = [
            {"type": "pid"},
            {"type": "mount"},
            {"type": "ipc"},
            {"type": "uts"},
        ]
        self.spec["linux"]["cgroupsPath"] = f"/mgpu-test-{os.getpid()}"
        self.write()

    def write(self) -> bytes:
        (self.path / "config.json").write_text(json.dumps(self.spec, indent=2))
        return self.read()

    def read(self) -> bytes:
        return (self.path / "config.json").read_bytes()

    def runtime(self, verb: str, *words: str) -> subprocess.CompletedProcess[str]:
        return self.node.run("--root", str(self.node.root / "state"), verb, *words)

    def run(self, verb: str = "run") -> subprocess.CompletedProcess[str]:
        return self.runtime(verb, "--bundle", str(self.path), "c1")


@pytest.fixture
def bundle(node: Node, rootfs: Path) -> Iterator[Bundle]:
    bundle = Bundle(node, rootfs)
    yield bundle
    attempt("runc", "--root", node.root / "state", "delete", "--force", "c1")


def answering(node: Node, **replies: Any) -> Answer:
    """Grants one card unless the reply to a verb is given."""
    given = {
        "admit": ok(action="grant", grant=grant(node.socket, node.listener, env=["GRANTED=1"])),
        **replies,
    }
    return lambda request: given.get(request["verb"], ok())


def test_runc_gets_a_spec_without_gpu_unchanged(bundle: Bundle) -> None:
    bundle.spec["annotations"] = {"some": "thing"}
    original = bundle.write()
    with Mgpud(bundle.node.socket, lambda _: ok()) as mgpud:
        done = bundle.run()
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["env PATH=/", "env HOME=/"]
    assert bundle.read() == original
    assert os.listdir(bundle.path) == ["config.json"]
    assert mgpud.requests == []


def test_granted_container(bundle: Bundle) -> None:
    bundle.spec["process"]["env"].append("MGPU_GPUS=1")
    original = bundle.write()
    with Mgpud(bundle.node.socket, answering(bundle.node)) as mgpud, Holder(bundle.node.listener) as holder:
        done = bundle.run()
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [
        "env GRANTED=1",
        "env HOME=/",
        "env MGPU_GPUS=1",
        "env PATH=/",
        "node nvidia-uvm",
        "node nvidia0",
        "node nvidiactl",
    ]
    assert mgpud.verbs() == ["admit", "bind", "release"]
    admit, bind, release = mgpud.requests
    assert admit["container_id"] == "c1"
    assert bind["nonce"] == release["nonce"] == NONCE
    assert bind["state"]["id"] == release["state"]["id"] == "c1"
    assert bind["state"]["bundle"] == str(bundle.path)
    assert bind["state"]["pid"] > 0
    assert holder.metadata == [NONCE]
    assert (bundle.path / ".mgpu-config.json").read_bytes() == original


def test_create_start_delete_through_the_runtime(bundle: Bundle) -> None:
    bundle.spec["process"] |= {"args": ["/show", "wait"], "env": ["MGPU_GPUS=1"]}
    bundle.write()
    # A container that lives keeps what it was given as stdout: files, or reading it to the end would not end.
    with Mgpud(bundle.node.socket, answering(bundle.node)) as mgpud, Holder(bundle.node.listener) as holder:
        command = [str(bundle.node.script), "--root", str(bundle.node.root / "state")]
        with open(bundle.node.root / "out", "w") as out:
            subprocess.run(
                [*command, "create", "--bundle", bundle.path, "c1"],
                stdout=out,
                stderr=out,
                stdin=subprocess.DEVNULL,
                check=True,
                timeout=100,
            )
        assert mgpud.verbs() == ["admit", "bind"]
        assert mgpud.peer_pids[0] != mgpud.requests[1]["state"]["pid"]
        assert bundle.runtime("start", "c1").returncode == 0
        assert json.loads(bundle.runtime("state", "c1").stdout)["status"] == "running"
        assert holder.metadata == [NONCE]
        assert bundle.runtime("delete", "--force", "c1").returncode == 0
        assert mgpud.verbs() == ["admit", "bind", "release"]
    assert "node nvidia0" in (bundle.node.root / "out").read_text()


def test_refused_bind_fails_the_create_with_its_line(bundle: Bundle) -> None:
    bundle.spec["process"]["env"].append("MGPU_GPUS=1")
    bundle.write()
    no = refused("the grant expired", "create the container again")
    with Mgpud(bundle.node.socket, answering(bundle.node, bind=no)) as mgpud, Holder(bundle.node.listener):
        done = bundle.run()
    assert done.returncode != 0
    assert "mgpu: the grant expired; create the container again" in "".join(bundle.node.logged())
    assert "release" in mgpud.verbs()
    assert bundle.runtime("state", "c1").returncode != 0


def test_container_without_holder_does_not_start(bundle: Bundle) -> None:
    """mgpud grants but the holder is gone: never a container without enforcement."""
    bundle.spec["process"]["env"].append("MGPU_GPUS=1")
    bundle.write()
    with Mgpud(bundle.node.socket, answering(bundle.node)) as mgpud:
        done = bundle.run()
    assert done.returncode != 0
    assert done.stdout == ""
    assert mgpud.verbs() == ["admit", "bind", "release"]


def test_release_to_a_mgpud_that_went_away_does_not_fail_the_container(bundle: Bundle) -> None:
    bundle.spec["process"]["env"].append("MGPU_GPUS=1")
    bundle.write()
    with Mgpud(bundle.node.socket, answering(bundle.node, release=None)), Holder(bundle.node.listener):
        done = bundle.run()
    assert done.returncode == 0, done.stderr


def test_mgpud_is_down(bundle: Bundle) -> None:
    bundle.spec["annotations"] = {"aliyun.com/gpu-mem": "8"}
    original = bundle.write()
    done = bundle.run("create")
    assert done.returncode == 1
    line = one_line(done.stderr)
    assert line.startswith("mgpu: mgpud is not running: no answer on ")
    assert bundle.node.logged() == [line]
    assert bundle.read() == original
    assert bundle.runtime("delete", "--force", "c1").returncode == 0


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (None, "cannot be read: No such file or directory"),
        ("{", "is not JSON"),
        ("[]", "is not a JSON object"),
        ('{"linux":7}', '"linux" is "7", not an object'),
        ('{"mounts":[{"type":"none","options":[1]}]}', '"options" is "1", not an array of strings'),
    ],
)
def test_bad_specs(bundle: Bundle, content: str | None, what: str) -> None:
    config = bundle.path / "config.json"
    config.unlink()
    if content is not None:
        config.write_text(content)
    done = bundle.run("create")
    assert done.returncode == 1
    assert what in one_line(done.stderr)
    assert bundle.node.logged() == [one_line(done.stderr)]
    assert os.listdir(bundle.path) == ([] if content is None else ["config.json"])


def test_runc_s_own_errors_are_its_own(bundle: Bundle) -> None:
    bundle.spec["process"]["args"] = ["/no-such-program"]
    bundle.write()
    through = bundle.run()
    plain = attempt("runc", "--root", bundle.node.root / "state", "run", "--bundle", bundle.path, "c1")
    assert through.returncode == plain.status != 0
    assert "no-such-program" in through.stderr
    assert "no-such-program" in plain.err


@pytest.fixture(scope="module")
def daemon(private_host: None) -> Iterator[Containerd]:
    with containerd.running("path", images=()) as running:
        yield running


@pytest.fixture
def ctr(daemon: Containerd, node: Node, rootfs: Path) -> Callable[..., Done]:
    """`ctr run` of the program that shows what it has, through mgpu-runtime, with more options."""

    def run(*options: str) -> Done:
        try:
            return daemon.try_ctr(
                "run", "--rm", "--rootfs", "--runc-binary", node.script, *options, rootfs, "c1", "/show"
            )
        finally:
            daemon.remove("c1")

    return run


def test_ctr_without_a_gpu(ctr: Callable[..., Done], node: Node) -> None:
    with Mgpud(node.socket, lambda _: ok()) as mgpud:
        done = ctr("--env", "A=b")
    assert done.status == 0, done.err
    assert "env A=b" in done.out.splitlines()
    assert mgpud.requests == []


def test_ctr_with_a_card(ctr: Callable[..., Done], node: Node) -> None:
    with Mgpud(node.socket, answering(node)) as mgpud, Holder(node.listener) as holder:
        done = ctr("--annotation", "mgpu.dev/gpus=1")
    assert done.status == 0, done.err
    assert {"node nvidia0", "node nvidiactl", "env GRANTED=1"} <= set(done.out.splitlines())
    assert mgpud.verbs() == ["admit", "bind", "release"]
    assert mgpud.requests[0]["annotations"] == {"mgpu.dev/gpus": "1"}
    assert holder.metadata == [NONCE]


def test_ctr_s_user_sees_that_mgpud_is_down(ctr: Callable[..., Done], node: Node) -> None:
    done = ctr("--env", "MGPU_MEMORY_MIB=1024")
    assert done.status != 0
    why = f"mgpud is not running: no answer on {node.socket} (no such socket)"
    line = f"mgpu: {why}; start mgpud, then try again"
    # containerd 1.x adds the code of its own error.
    said = done.err.removesuffix("\n").removesuffix(": unknown")
    assert said == f"ctr: failed to create shim task: OCI runtime create failed: {line}"


def test_ctr_s_user_sees_a_refusal_word_for_word(ctr: Callable[..., Done], node: Node) -> None:
    no = refused('MGPU_GPUS is "7 \\ é", allowed are 1 to 2', "ask for fewer GPUs")
    with Mgpud(node.socket, answering(node, admit=no)):
        done = ctr("--env", "MGPU_GPUS=7")
    line = 'mgpu: MGPU_GPUS is "7 \\ é", allowed are 1 to 2; ask for fewer GPUs'
    # containerd 1.x adds the code of its own error.
    said = done.err.removesuffix("\n").removesuffix(": unknown")
    assert said == f"ctr: failed to create shim task: OCI runtime create failed: {line}"


def test_ctr_s_user_sees_a_missing_config(ctr: Callable[..., Done], node: Node) -> None:
    node.conf.unlink()
    done = ctr()
    assert (
        f"OCI runtime create failed: mgpu: mgpu-runtime cannot read its config {node.conf}: No such"
        in done.err
    )


def test_ctr_privileged_is_told_to_mgpud(ctr: Callable[..., Done], node: Node) -> None:
    no = refused("the container reaches a GPU without a grant", "drop --privileged")
    with Mgpud(node.socket, answering(node, admit=no)) as mgpud:
        done = ctr("--privileged")
    assert {"how": "cgroup", "detail": "device rule a *:* rwm"} in mgpud.requests[0]["reach"]
    assert "mgpu: the container reaches a GPU without a grant; drop --privileged" in done.err
