"""podman's precreate hook: a spec in, a spec out, and what podman and mgpud are told when there is none to
give.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from oci_specs.edits import ORIGINAL_SHA256
from oci_specs.refusal import Refusal
from runtime_hook.precreate import identify
from tests.create_path import NONCE, Mgpud, Node, grant, ok, one_line, refused
from tests.unit.spec_support import load

ID = "c0ffee" + 58 * "0"
ASKING = {"mgpu.dev/memory-mib": "1024"}


pytestmark = pytest.mark.usefixtures("create_path_programs", "way")


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path, "/bin/false")


def spec(annotations: dict[str, str] | None = None, **members: Any) -> bytes:
    """podman's, as bytes that no program would write again."""
    told = json.loads(json.dumps(load("podman-4.3-default")).replace("c0ffee", ID))
    for mount in told["mounts"]:
        # Of a podman that ran elsewhere.
        if mount["type"] == "bind" and not os.path.exists(mount["source"]):
            mount["source"] = "/tmp"
    return json.dumps({**told, "annotations": annotations or {}, **members}, indent=3).encode()


def hook(node: Node, text: bytes) -> subprocess.CompletedProcess[bytes]:
    """As podman starts it: no standard error."""
    return subprocess.run(
        [node.script, "precreate"],
        input=text,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        timeout=60,
        check=False,
    )


def answering(node: Node, **edits: Any) -> Mgpud:
    given = grant(node.socket, node.listener, **edits)
    return Mgpud(
        node.socket, lambda request: ok(action="grant", grant=given) if request["verb"] == "admit" else ok()
    )


def test_spec_without_gpu_is_unchanged(node: Node) -> None:
    text = spec()
    with Mgpud(node.socket, lambda _: ok()) as mgpud:
        done = hook(node, text)
    assert (done.returncode, done.stdout) == (0, text)
    assert mgpud.requests == []


def test_pass_goes_through_byte_for_byte(node: Node) -> None:
    text = spec(ASKING)
    with Mgpud(node.socket, lambda _: ok(action="pass")):
        done = hook(node, text)
    assert (done.returncode, done.stdout) == (0, text)


def test_grant_rewrites_the_hooks_spec(node: Node) -> None:
    with answering(node, env=["GRANTED=1"]) as mgpud:
        done = hook(node, spec(ASKING))
    assert done.returncode == 0
    [admit] = mgpud.requests
    # The process that goes on to start the container, not the hook, which is gone by now.
    assert (admit["container_id"], admit["runtime_pid"]) == (ID, os.getpid())
    assert admit["rootfs"] == json.loads(spec())["root"]["path"]
    rewritten = json.loads(done.stdout)
    assert "GRANTED=1" in rewritten["process"]["env"]
    assert rewritten["linux"]["seccomp"]["listenerMetadata"] == NONCE
    assert rewritten["hooks"]["createRuntime"][0]["args"][:2] == ["mgpu-hook", "bind"]
    assert set(rewritten["annotations"]) == {*ASKING, ORIGINAL_SHA256}


def test_refusal_is_seen_where_podman_prints(node: Node, tmp_path: Path) -> None:
    said = tmp_path / "stderr"
    starter = "import subprocess, sys; sys.exit(subprocess.run(sys.argv[1:], stderr=subprocess.DEVNULL).returncode)"
    with Mgpud(node.socket, lambda _: refused("no GPU has room", "wait")), said.open("wb") as stderr:
        done = subprocess.run(
            [sys.executable, "-c", starter, node.script, "precreate"],
            input=spec(ASKING),
            stdout=subprocess.PIPE,
            stderr=stderr,
            timeout=60,
            check=False,
        )
    assert (done.returncode, done.stdout) == (1, b"")
    assert one_line(said.read_text()) == "mgpu: no GPU has room; wait"


LOGGED = """
import pathlib, socket, subprocess, sys
with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as log:
    log.bind("/dev/log")
    log.settimeout(20)
    subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    print(log.recv(4096).decode())
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root")
def test_refusal_is_in_the_systems_log(node: Node) -> None:
    """In a /dev of the test's own."""
    own = "mount -t tmpfs none /dev && mknod -m 666 /dev/null c 1 3 && exec "
    with Mgpud(node.socket, lambda _: refused("no GPU has room", "wait")):
        done = subprocess.run(
            ["unshare", "--mount", "sh", "-c", own + '"$@"', "sh"]
            + [sys.executable, "-c", LOGGED, str(node.script), "precreate"],
            input=spec(ASKING),
            stdout=subprocess.PIPE,
            timeout=60,
            check=True,
        )
    assert done.stdout.decode().strip().endswith(" mgpu: no GPU has room; wait")


def test_invalid_spec_is_refused(node: Node) -> None:
    done = hook(node, b"{")
    assert (done.returncode, done.stdout) == (1, b"")


def test_grant_is_released_when_the_spec_cannot_be_rewritten(node: Node) -> None:
    text = json.loads(spec(ASKING))
    notifies = {"names": ["mount"], "action": "SCMP_ACT_NOTIFY"}
    own = {"defaultAction": "SCMP_ACT_ALLOW", "listenerPath": "/another/listener", "syscalls": [notifies]}
    text["linux"]["seccomp"] = own
    with answering(node) as mgpud:
        done = hook(node, json.dumps(text).encode())
    assert (done.returncode, done.stdout) == (1, b"")
    assert mgpud.verbs() == ["admit", "release"]


@pytest.mark.parametrize(
    "told",
    [
        {"linux": {"cgroupsPath": f"/libpod_parent/libpod-{ID}"}},
        {"linux": {"cgroupsPath": f"machine.slice:libpod:{ID}"}},
        {"mounts": [{"source": "proc"}, {"source": f"/x/overlay-containers/{ID}/userdata/hosts"}]},
    ],
)
def test_containers_id(told: dict[str, Any]) -> None:
    assert identify(told) == ID


def test_identify_refuses_a_spec_without_id() -> None:
    with pytest.raises(Refusal) as refusal:
        identify({"linux": {"cgroupsPath": "/mine/box"}, "mounts": [{"source": "/containers/x"}]})
    assert "does not tell the container's id" in refusal.value.line()
