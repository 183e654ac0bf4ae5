"""create and run up to the exec of the runtime: what is asked, what is written, and what is left when it
fails.
"""

import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.create_path import NONCE, Mgpud, Node, grant, ok, one_line, refused, write_script
from tests.support.commands import run
from tests.unit.spec_support import load

ASKING = {"aliyun.com/gpu-mem": "8", "unrelated": "x", "io.kubernetes.pod.name": "p"}

pytestmark = pytest.mark.usefixtures("create_path_programs", "way")


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """The runtime is a script that tells its pid, arguments and environment."""
    (tmp_path / "bundle").mkdir()
    return Node(tmp_path, write_script(tmp_path / "runc", 'echo $$; printf "%s\\n" "$@"; env'))


def write_spec(node: Node, *, annotations: dict[str, str] | None = None, **members: Any) -> bytes:
    spec = {**load("docker-20.10-default"), "annotations": annotations or {}, **members}
    for mount in spec["mounts"]:
        # Of an engine that ran elsewhere.
        if mount["type"] == "bind" and not os.path.exists(mount["source"]):
            mount["source"] = str(node.root)
    # Indented, so that a spec that was parsed and written again would be another.
    (node.root / "bundle/config.json").write_text(json.dumps(spec, indent=3))
    return (node.root / "bundle/config.json").read_bytes()


def create(node: Node, verb: str = "create", **options: Any) -> subprocess.CompletedProcess[str]:
    return node.run(verb, "--bundle", str(node.root / "bundle"), "--pid-file", "p", "c1", **options)


def files(node: Node) -> list[str]:
    return sorted(os.listdir(node.root / "bundle"))


def spec_bytes(node: Node) -> bytes:
    return (node.root / "bundle/config.json").read_bytes()


def granting(node: Node, **edits: Any) -> Mgpud:
    given = grant(node.socket, node.listener, **edits)
    return Mgpud(
        node.socket, lambda request: ok(action="grant", grant=given) if request["verb"] == "admit" else ok()
    )


def asked_before(way: str) -> list[str]:
    """By the launcher that had mgpud prepare, before it has Python try it again and say what is wrong."""
    return ["admit"] if way == "mgpud" else []


def failed(node: Node, done: subprocess.CompletedProcess[str]) -> str:
    """The line, seen both on stderr and in the log."""
    assert done.returncode == 1
    assert done.stdout == ""
    line = one_line(done.stderr)
    assert node.logged()[-1] == line
    return line


@pytest.mark.parametrize(
    "members",
    [
        {},
        {"annotations": {"unrelated": "x", "katalyst.kubewharf.io/qos_level": "reclaimed_cores"}},
        {
            "process": {
                "env": ["NVIDIA_VISIBLE_DEVICES=none", "NVIDIA_VISIBLE_DEVICES=void", "NOT_MGPU_GPUS=1"]
            }
        },
        {"annotations": {**ASKING, "io.kubernetes.cri.container-type": "sandbox"}},
        {"annotations": {**ASKING, "io.kubernetes.cri-o.ContainerType": "sandbox"}},
        {"hostname": "\ud800 lone surrogate"},
    ],
)
@pytest.mark.parametrize("verb", ["create", "run"])
def test_create_without_gpu_does_not_ask_mgpud(node: Node, verb: str, members: dict[str, Any]) -> None:
    original = write_spec(node, **members)
    done = create(node, verb)
    assert done.returncode == 0, done.stderr
    assert spec_bytes(node) == original
    assert files(node) == ["config.json"]


def test_bytes_that_are_no_utf8_pass(node: Node) -> None:
    original = write_spec(node, hostname="HOST").replace(b"HOST", b"\xff\xfe")
    (node.root / "bundle/config.json").write_bytes(original)
    assert create(node).returncode == 0
    assert spec_bytes(node) == original


def test_runtime_gets_its_arguments_and_environment(node: Node) -> None:
    write_spec(node)
    done = create(node, env={"LISTEN_FDS": "1", "X": "a b"})
    lines = done.stdout.splitlines()
    bundle = str(node.root / "bundle")
    expected = [
        "--log",
        str(node.log),
        "--log-format",
        "json",
        "create",
        "--bundle",
        bundle,
        "--pid-file",
        "p",
        "c1",
    ]
    assert lines[1:11] == expected
    # A shell adds PWD; nothing came from Python, not even LC_CTYPE.
    assert {line.partition("=")[0] for line in lines[11:]} == {"LISTEN_FDS", "X", "PWD"}


def test_file_descriptors_are_passed_on(node: Node) -> None:
    write_spec(node, annotations=ASKING)
    reading, writing = os.pipe()
    (node.root / "runc").write_text("#!/bin/sh\nls /proc/self/fd\n")
    with granting(node):
        done = create(node, pass_fds=(writing,))
    os.close(reading)
    os.close(writing)
    # 3 is ls's own.
    assert set(done.stdout.split()) == {"0", "1", "2", "3", str(writing)}, done.stderr


def test_admission(node: Node) -> None:
    write_spec(
        node,
        annotations=ASKING,
        process={"env": ["MGPU_QOS=online", "PATH=/", "NVIDIA_X=a=b", "MGPU_QOS=offline"]},
    )
    with granting(node) as mgpud:
        done = create(node)
    assert done.returncode == 0, done.stderr
    bundle = str(node.root / "bundle")
    assert mgpud.requests == [
        {
            "version": 1,
            "verb": "admit",
            "container_id": "c1",
            "bundle": bundle,
            "rootfs": load("docker-20.10-default")["root"]["path"],
            "annotations": {"aliyun.com/gpu-mem": "8", "io.kubernetes.pod.name": "p"},
            "env": {"MGPU_QOS": "offline", "NVIDIA_X": "a=b"},
            "reach": [],
            "seccomp_listener": None,
        }
    ]
    assert mgpud.peer_pids == [int(done.stdout.split()[0])], "the process that asked is not the runtime"


def test_grant_rewrites_the_spec(node: Node) -> None:
    original = write_spec(node, annotations=ASKING)
    (node.root / "bundle/config.json").chmod(0o640)
    with granting(node, cards=2):
        assert create(node).returncode == 0
    assert files(node) == [".mgpu-config.json", "config.json"]
    assert (node.root / "bundle/.mgpu-config.json").read_bytes() == original
    assert (node.root / "bundle/config.json").stat().st_mode & 0o777 == 0o640
    new = json.loads(spec_bytes(node))
    assert all(new["annotations"].pop(f"dev.mgpu.{name}-sha256") for name in ("own", "written"))
    assert new["annotations"] == {**ASKING, "dev.mgpu.original-sha256": hashlib.sha256(original).hexdigest()}
    assert [device["path"] for device in new["linux"]["devices"]][-1] == "/dev/nvidia1"
    assert new["linux"]["seccomp"]["listenerMetadata"] == NONCE


def test_reach_and_foreign_listener_are_told(node: Node) -> None:
    spec = load("docker-20.10-privileged")
    spec["linux"]["seccomp"] = {"defaultAction": "SCMP_ACT_ALLOW", "listenerPath": "/foreign.sock"}
    spec["root"] = {"path": "../bundle/rootfs"}
    (node.root / "bundle/config.json").write_text(json.dumps(spec))
    with Mgpud(node.socket, lambda _: refused("the container reaches a GPU", "drop --privileged")) as mgpud:
        line = failed(node, create(node))
    assert line == "mgpu: the container reaches a GPU; drop --privileged"
    assert mgpud.requests[0]["reach"] == [{"how": "cgroup", "detail": "device rule a *:* rwm"}]
    assert mgpud.requests[0]["seccomp_listener"] == "/foreign.sock"
    assert mgpud.requests[0]["rootfs"] == str(node.root / "bundle/rootfs")


def test_pass_leaves_the_spec(node: Node) -> None:
    original = write_spec(node, process={"env": ["NVIDIA_VISIBLE_DEVICES=all"]})
    with Mgpud(node.socket, lambda _: ok(action="pass")) as mgpud:
        assert create(node).returncode == 0
    assert mgpud.verbs() == ["admit"]
    assert spec_bytes(node) == original
    assert files(node) == ["config.json"]


def test_second_create_starts_from_the_original(node: Node) -> None:
    write_spec(node, annotations=ASKING)
    with granting(node):
        create(node)
        first, kept = spec_bytes(node), (node.root / "bundle/.mgpu-config.json").read_bytes()
        assert create(node).returncode == 0
    assert spec_bytes(node) == first
    assert (node.root / "bundle/.mgpu-config.json").read_bytes() == kept


def test_second_create_that_passes_runs_the_original(node: Node) -> None:
    original = write_spec(node, annotations=ASKING)
    with granting(node):
        create(node)
    node.socket.unlink()
    with Mgpud(node.socket, lambda _: ok(action="pass")):
        assert create(node).returncode == 0
    assert spec_bytes(node) == original
    assert files(node) == ["config.json"]


def test_spec_edited_after_a_first_create(node: Node) -> None:
    write_spec(node, annotations=ASKING)
    config = node.root / "bundle/config.json"
    with granting(node):
        create(node)
        config.write_text(config.read_text().replace('"args":["true"]', '"args":["another"]'))
        assert create(node).returncode == 0
        edited = json.loads(config.read_bytes())
        edited["process"]["env"] = edited["process"]["args"]
        config.write_text(json.dumps(edited, separators=(",", ":")))
        line = failed(node, create(node))
    assert line == (
        f"mgpu: {config} was edited after mgpu had rewritten it, in what mgpu wrote; "
        f"edit {node.root}/bundle/.mgpu-config.json instead and put it in its place, or use a fresh bundle"
    )
    assert json.loads(config.read_bytes()) == edited
    assert edited["process"]["args"] == ["another"]


@pytest.mark.parametrize("damage", ["changed", "missing"])
def test_rewritten_spec_without_its_original_is_refused(node: Node, damage: str) -> None:
    write_spec(node, annotations=ASKING)
    kept = node.root / "bundle/.mgpu-config.json"
    with granting(node) as mgpud:
        create(node)
        before = spec_bytes(node)
        kept.unlink()
        if damage == "changed":
            kept.write_text("{}")
        line = failed(node, create(node))
    assert line.startswith(
        f"mgpu: {node.root}/bundle/config.json was rewritten by mgpu and its original is not"
    )
    assert spec_bytes(node) == before
    assert mgpud.verbs() == ["admit"]


def test_annotation_of_ours_from_a_user_is_refused(node: Node) -> None:
    original = write_spec(node, annotations={"dev.mgpu.original-sha256": "x"})
    assert "was rewritten by mgpu" in failed(node, create(node))
    assert spec_bytes(node) == original


def test_mgpud_not_running(node: Node) -> None:
    original = write_spec(node, annotations=ASKING)
    expected = f"mgpu: mgpud is not running: no answer on {node.socket} (no such socket); "
    assert failed(node, create(node)) == expected + "start mgpud, then try again"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as gone:
        gone.bind(str(node.socket))
    assert "(Connection refused)" in failed(node, create(node))
    assert spec_bytes(node) == original
    assert files(node) == ["config.json"]


BAD_REPLIES: list[tuple[Any, str]] = [
    (None, "mgpud is not running: no answer on"),
    (b"", "mgpud is not running: no answer on"),
    (b'{"version":1,"ok":tr', "answered with 20 bytes that are no reply of version 1"),
    (b"[]", "answered with 2 bytes that are no reply of version 1"),
    (b"\xff", "answered with 1 bytes that are no reply of version 1"),
    (b"[" * 100_000, "answered with 100000 bytes that are no reply of version 1"),
    (b'{"version":2,"ok":true}', "answered with 23 bytes that are no reply of version 1"),
    ({"version": 1, "ok": False}, "answered with a refusal without a reason"),
    ({"version": 1, "ok": 1, "action": "pass"}, "answered with a refusal without a reason"),
    (ok(), "answered with neither a pass nor a grant"),
    (ok(action="grant"), "answered with neither a pass nor a grant"),
    (ok(action="grant", grant={"nonce": 1}), "answered with neither a pass nor a grant"),
    (ok(action="grant", grant={"nonce": NONCE}), "answered with a malformed grant (KeyError: 'cards')"),
    (
        ok(action="grant", grant={"nonce": NONCE, "cards": [1], "edits": []}),
        "answered with a malformed grant",
    ),
]


@pytest.mark.parametrize("way", ["python"], indirect=True)
@pytest.mark.parametrize(("reply", "line"), BAD_REPLIES)
def test_bad_replies(node: Node, reply: Any, line: str) -> None:
    original = write_spec(node, annotations=ASKING)
    with Mgpud(node.socket, lambda request: reply if request["verb"] == "admit" else ok()) as mgpud:
        assert line in failed(node, create(node))
    assert spec_bytes(node) == original
    assert files(node) == ["config.json"]
    granted = isinstance(reply, dict) and reply.get("grant", {}).get("nonce") == NONCE
    assert mgpud.verbs() == (["admit", "release"] if granted else ["admit"])


BAD_SPECS: list[tuple[bytes | None, str]] = [
    (None, "cannot be read: No such file or directory"),
    (b"", "is not JSON: Expecting value"),
    (b"{", "is not JSON: Expecting property name"),
    (b'{"a":1}{', "is not JSON: Extra data: line 1 column 8"),
    (b"[]", "is not a JSON object"),
    (b"null", "is not a JSON object"),
    (b"[" * 100_000, "is not JSON: maximum recursion depth"),
    (b"\x00\x01", "is not JSON"),
    (b'{"annotations":[]}', '"annotations" is "[]", not an object'),
    (b'{"process":"x"}', '"process" is "x", not an object'),
    (b'{"process":{"env":[1]}}', '"env" is "1", not an array of strings'),
    (b'{"linux":{"devices":7}}', '"devices" is "7", not an array'),
    (b'{"root":[],"annotations":{"mgpu.dev/gpus":"1"}}', '"root" is "[]", not an object'),
]


@pytest.mark.parametrize(("content", "line"), BAD_SPECS)
def test_bad_specs(node: Node, content: bytes | None, line: str) -> None:
    if content is not None:
        (node.root / "bundle/config.json").write_bytes(content)
    with granting(node) as mgpud:
        assert line in failed(node, create(node))
    assert mgpud.requests == []
    if content is not None:
        assert spec_bytes(node) == content


def test_spec_that_is_a_folder_and_a_bundle_that_is_not_there(node: Node) -> None:
    (node.root / "bundle/config.json").mkdir()
    assert "cannot be read: Is a directory" in failed(node, create(node))
    shutil.rmtree(node.root / "bundle")
    assert "cannot be read: No such file or directory" in failed(node, create(node))


def test_malformed_spec_found_after_admission_is_released(node: Node) -> None:
    original = write_spec(
        node, annotations=ASKING, linux={"resources": {"devices": [{}]}, "seccomp": {"syscalls": 7}}
    )
    with granting(node) as mgpud:
        failed(node, create(node))
    assert mgpud.verbs() == ["admit", "release"]
    assert mgpud.requests[1]["nonce"] == NONCE
    assert mgpud.requests[1]["state"]["id"] == "c1"
    assert spec_bytes(node) == original


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small file system")
def test_full_disk_is_one_line(node: Node, way: str) -> None:
    """The bundle is on a tmpfs with room for the spec but not for another."""
    bundle = node.root / "bundle"
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12k", "tmpfs", bundle], check=True)
    try:
        original = write_spec(node, annotations=ASKING)
        assert len(original) > 4096
        with granting(node) as mgpud:
            line = failed(node, create(node))
        assert line.startswith(
            f"mgpu: the spec {bundle}/config.json cannot be rewritten: No space left on device; "
        )
        assert mgpud.verbs() == [*asked_before(way), "admit", "release"]
        assert spec_bytes(node) == original
        assert files(node) == ["config.json"]
    finally:
        subprocess.run(["umount", bundle], check=True)


def test_runtime_that_cannot_be_started(node: Node, way: str) -> None:
    (node.root / "runc").write_text("#!/no/such/interpreter\n")
    original = write_spec(node, annotations=ASKING)
    with granting(node) as mgpud:
        assert "cannot start" in failed(node, create(node))
    assert mgpud.verbs() == [*asked_before(way), "admit", "release"]
    assert spec_bytes(node) == original
    assert files(node) == ["config.json"]


def test_failed_release_does_not_hide_the_failure(node: Node) -> None:
    write_spec(node, annotations=ASKING, linux={"resources": {"devices": [{}]}, "seccomp": {"syscalls": 7}})
    given = grant(node.socket, node.listener)
    with Mgpud(
        node.socket, lambda request: ok(action="grant", grant=given) if request["verb"] == "admit" else None
    ):
        assert '"syscalls" is "7", not an array' in failed(node, create(node))


def test_create_refuses_an_oversized_request(node: Node) -> None:
    write_spec(node, annotations={"mgpu.dev/gpus": "1" * 140_000})
    with granting(node) as mgpud:
        assert "bytes for mgpud, at most 131072" in failed(node, create(node))
    assert mgpud.requests == []


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["create"], 'create names 0 containers: ""'),
        (["create", "a", "b"], 'create names 2 containers: "a b"'),
        (["run", "--unheard-of", "value", "c1"], 'run names 2 containers: "--unheard-of value c1"'),
    ],
)
def test_bad_arguments(node: Node, words: list[str], line: str) -> None:
    assert failed(node, node.run(*words)) == f"mgpu: {line}; name one"


@pytest.mark.parametrize(
    "words",
    [
        ["create", "-b", "{}", "c1"],
        ["create", "-b={}", "c1"],
        ["create", "--bundle={}", "c1"],
        ["create", "-bundle", "{}", "c1"],
        ["create", "c1", "--bundle", "{}"],
        ["create", "--bundle", "/elsewhere", "--bundle", "{}", "c1"],
        ["run", "--detach", "--keep", "--preserve-fds", "2", "--bundle", "{}", "--", "c1"],
        ["create", "--config", "config.json", "--bundle", "{}", "--no-pivot", "c1"],
    ],
)
def test_ways_to_name_the_bundle(node: Node, words: list[str]) -> None:
    write_spec(node, annotations=ASKING)
    with granting(node) as mgpud:
        done = node.run(*(word.format(node.root / "bundle") for word in words))
    assert done.returncode == 0, done.stderr
    assert (mgpud.requests[0]["bundle"], mgpud.requests[0]["container_id"]) == (
        str(node.root / "bundle"),
        "c1",
    )


def test_bundle_is_the_current_directory(node: Node) -> None:
    write_spec(node, annotations=ASKING)
    with granting(node) as mgpud:
        assert node.run("create", "c1", cwd=node.root / "bundle").returncode == 0
    assert mgpud.requests[0]["bundle"] == str(node.root / "bundle")


def test_help_further_on_goes_to_the_runtime(node: Node) -> None:
    done = node.run("create", "--no-pivot", "--help")
    assert done.stdout.splitlines()[5:8] == ["create", "--no-pivot", "--help"]


def test_modules_loaded_for_a_container_without_gpu(node: Node) -> None:
    """The import budget: what costs time is loaded under a grant only, and much of the library never."""
    code = "import sys; sys.path.append(sys.argv[1]); import runtime_hook.create; print(*sys.modules)"
    loaded = set(run(sys.executable, "-ISsc", code, Path(__file__).parents[3]).split())
    banned = {
        "argparse",
        "dataclasses",
        "hashlib",
        "inspect",
        "pathlib",
        "socket",
        "subprocess",
        "typing",
        "tempfile",
    }
    assert not loaded & (
        banned | {"oci_specs.seccomp", "oci_specs.request", "oci_specs.parse", "oci_specs.cdi"}
    )


@pytest.mark.parametrize(
    ("version", "more", "refused"),
    [
        ("runc version 1.3.6", [], True),
        ("runc version 1.2.0-rc.1", [], True),
        ("runc version 1.1.15+ds1", [], False),
        ("crun version 1.28", [], False),
        ("runc version 1.3.6", ["recvfrom"], False),
    ],
)
def test_profile_under_which_runc_cannot_hand_on_the_listener(
    node: Node, way: str, version: str, more: list[str], refused: bool
) -> None:
    write_script(node.root / "runc", f'[ "$1" = --version ] && echo "{version}" || echo ran')
    allowed = {"names": ["ioctl", "write", *more], "action": "SCMP_ACT_ALLOW"}
    linux = {"seccomp": {"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [allowed]}}
    before = write_spec(node, annotations=ASKING, linux=linux)
    with granting(node) as mgpud:
        done = create(node)
    if not refused:
        assert (done.returncode, done.stdout) == (0, "ran\n")
        return
    assert "denies recvfrom, and runc 1." in failed(node, done)
    assert spec_bytes(node) == before
    assert mgpud.verbs()[-1] == "release"
