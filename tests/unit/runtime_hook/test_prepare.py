"""The verb `prepare`, from both ends: the launcher and what mgpud may answer it, mgpud and what a launcher
may send.
"""

import asyncio
import json
import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from native_sched.daemon.control import prepare
from native_sched.daemon.control.prepare import Prepare
from native_sched.daemon.control.server import Server
from native_sched.daemon.node.config import NodeConfig
from oci_specs import schemas
from tests.create_path import Mgpud, Node, grant, ok, one_line, write_script
from tests.unit.arbiter_support import World
from tests.unit.prepare_support import ASKING, as_text, talk
from tests.unit.spec_support import SPECS, load

pytestmark = pytest.mark.usefixtures("create_path_programs")

NEW = b'{"new":1}'


def node_at(folder: Path, *, python: bool) -> Node:
    """Without Python, what is done was done by mgpud. The runtime prints the spec that it finds."""
    (folder / "bundle").mkdir(parents=True)
    node = Node(folder, write_script(folder / "runc", f"cat {folder}/bundle/config.json"))
    if not python:
        text = node.conf.read_text()
        node.conf.write_text(
            "".join(
                'python = "/no/such"\n' if line.startswith("python") else line
                for line in text.splitlines(True)
            )
        )
    return node


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return node_at(tmp_path / "n", python=False)


@pytest.fixture
def cautious(tmp_path: Path) -> Node:
    return node_at(tmp_path / "n", python=True)


def spec(name: str = "runc-1.1-spec", **members: Any) -> dict[str, Any]:
    """A spec whose bind mounts are there."""
    made = {**load(name), **members}
    for mount in made["mounts"]:
        if mount["type"] == "bind" and not os.path.exists(mount["source"]):
            mount["source"] = "/tmp"
    return made


def write_spec(node: Node, content: dict[str, Any] | bytes) -> bytes:
    text = content if isinstance(content, bytes) else json.dumps(content, indent=1).encode()
    (node.root / "bundle/config.json").write_bytes(text)
    return text


def create(node: Node) -> subprocess.CompletedProcess[str]:
    return node.run("create", "--bundle", str(node.root / "bundle"), "c1", errors="surrogateescape")


class Saying(Mgpud):
    """Answers prepare with these packets, whatever is asked, and grants what is asked otherwise."""

    def __init__(self, node: Node, *packets: bytes | dict[str, Any] | None) -> None:
        given = grant(node.socket, node.listener)
        super().__init__(
            node.socket,
            lambda request: ok(action="grant", grant=given) if request["verb"] == "admit" else ok(),
        )
        self.packets = packets
        self.told: list[bytes] = []

    def prepare(self, peer: socket.socket, request: dict[str, Any], pid: int) -> None:
        schemas.validate("control", request)
        for packet in self.packets:
            self.told.append(peer.recv(1 << 20))
            if packet is None:
                peer.recv(1 << 20)  # nothing is said until the launcher hangs up
            else:
                peer.send(packet if isinstance(packet, bytes) else json.dumps(packet).encode())


def test_spec_without_gpu_is_passed_unchanged(node: Node) -> None:
    original = write_spec(node, spec())
    with Saying(node, ok(action="pass")) as mgpud:
        done = create(node)
    assert (done.stdout, done.stderr) == (original.decode(), "")
    assert mgpud.told == [original]
    assert os.listdir(node.root / "bundle") == ["config.json"]


class SayingTwo(Saying):
    """Sends a reply and at once what follows it."""

    def prepare(self, peer: socket.socket, request: dict[str, Any], pid: int) -> None:
        self.told.append(peer.recv(1 << 20))
        for packet in self.packets:
            assert packet is not None
            peer.send(packet if isinstance(packet, bytes) else json.dumps(packet).encode())


def test_new_spec_keeps_mode_and_original(node: Node) -> None:
    original = write_spec(node, spec())
    config = node.root / "bundle/config.json"
    config.chmod(0o640)
    with SayingTwo(node, ok(action="write", bytes=len(NEW)), NEW):
        assert create(node).stdout == NEW.decode()
    kept = node.root / "bundle/.mgpu-config.json"
    assert (config.stat().st_mode & 0o777, kept.stat().st_mode & 0o777) == (0o640, 0o640)
    assert kept.read_bytes() == original
    assert sorted(os.listdir(node.root / "bundle")) == [".mgpu-config.json", "config.json"]


def test_refusal_is_said_whole(node: Node) -> None:
    write_spec(node, spec())
    message = 'no GPU has "room" ' + "ü" * 500
    error = {"code": "card-full", "message": message, "hint": "wait"}
    with Saying(node, ok(action="refuse", error=error)):
        done = create(node)
    assert done.returncode == 1
    assert one_line(done.stderr) == f"mgpu: {message}; wait"
    assert node.logged() == [f"mgpu: {message}; wait"]


def test_look_for_real_paths(node: Node) -> None:
    write_spec(node, spec())
    link = node.root / "a link"
    link.symlink_to("/dev/null")
    paths = [str(link), "/dev/../dev"]
    with Saying(node, ok(action="look", paths=paths), ok(action="pass")) as mgpud:
        assert create(node).returncode == 0
    assert json.loads(mgpud.told[1]) == {"found": [["/dev/null", 1], ["/dev", -1]]}
    schemas.validate("prepare#found", json.loads(mgpud.told[1]))


ERROR = {"code": "no", "message": "no", "hint": "no"}
UNSURE: list[bytes | dict[str, Any] | None] = [
    b"x",
    b"{}",
    b"[" * 100_000,
    b"x" * 200_000,
    {"version": 1, "ok": False, "error": {**ERROR, "code": "unknown-verb"}},
    {"version": 2, "ok": True, "action": "pass"},
    {"version": 1, "ok": 1, "action": "pass"},
    {"version": 1, "ok": True},
    ok(action="yourself"),
    ok(action=["pass"]),
    ok(action="dance"),
    ok(action="refuse"),
    ok(action="refuse", error="no"),
    ok(action="refuse", error={**ERROR, "message": ""}),
    ok(action="refuse", error={**ERROR, "message": "x" * 5000}),
    ok(action="write"),
    ok(action="write", bytes=-1),
    ok(action="write", bytes=1e99),
    ok(action="write", bytes=99_999_999_999),
    ok(action="write", bytes="9"),
    ok(action="original"),
    ok(action="look"),
    ok(action="look", paths={}),
    ok(action="look", paths=["/no/such/path"]),
    ok(action="look", paths=["etc"]),
    ok(action="look", paths=[7]),
    ok(action="look", paths=["/"] * 65),
    ok(action="look", paths=["/" + "x" * 5000]),
]


@pytest.mark.parametrize("reply", UNSURE)
def test_unsure_reply_falls_back_to_python(cautious: Node, reply: bytes | dict[str, Any] | None) -> None:
    write_spec(cautious, spec(annotations=ASKING))
    with Saying(cautious, reply) as mgpud:
        done = create(cautious)
    assert done.returncode == 0, done.stderr
    assert mgpud.verbs() == ["admit"]
    assert json.loads(done.stdout)["linux"]["seccomp"]["listenerPath"] == str(cautious.listener)


@pytest.mark.parametrize("said", [[ok(action="write", bytes=8), NEW], [ok(action="write", bytes=9)]])
def test_text_that_is_cut_is_not_taken(cautious: Node, said: list[bytes | dict[str, Any]]) -> None:
    write_spec(cautious, spec(annotations=ASKING))
    with SayingTwo(cautious, *said) as mgpud:
        assert create(cautious).returncode == 0
    assert mgpud.verbs() == ["admit"]


def test_silent_mgpud_is_not_waited_for(cautious: Node) -> None:
    original = write_spec(cautious, spec())
    with Saying(cautious, None):
        assert create(cautious).stdout == original.decode()


def odd_specs() -> Iterator[tuple[str, bytes]]:
    for path in sorted(SPECS.glob("*.json")):
        yield path.stem, json.dumps(spec(path.stem, annotations=ASKING), indent=1).encode()
    asking = spec(annotations=ASKING)
    yield "surrogates", json.dumps({**asking, "hostname": "\ud800 \u2028 ü"}).encode()
    yield "no UTF-8", json.dumps({**asking, "hostname": "HOST"}).encode().replace(b"HOST", b"\xff\xfe")
    yield "numbers", json.dumps({**asking, "x": [1e400, -0.0, 1 << 70, 0.1]}).encode()
    yield "deep", json.dumps({**asking, "x": 1}).encode().replace(b'"x": 1', b'"x": ' + b"[" * 2000)
    yield "malformed", json.dumps({**asking, "mounts": 1, "process": 2}).encode()
    yield (
        "odd path",
        json.dumps(
            {**asking, "mounts": [{"destination": "/x", "type": "bind", "source": "/\x00"}]}
        ).encode(),
    )


@pytest.mark.parametrize(
    ("name", "text"), list(odd_specs()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_mgpud_and_python_rewrite_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: bytes
) -> None:
    """Modulo where the two nodes are."""
    granted = ok(action="grant", grant=grant(Path("/s"), Path("/l")))
    told = []
    for prepares in (False, True):
        monkeypatch.setattr(Mgpud, "prepares", prepares)
        node = node_at(tmp_path / str(prepares), python=not prepares or name == "odd path")
        write_spec(node, text)
        with Mgpud(node.socket, lambda _: granted) as mgpud:
            done = create(node)
        where = str(node.root)
        told.append(
            (
                done.returncode,
                done.stdout.replace(where, "").replace(str(node.hook), "HOOK"),
                done.stderr.replace(where, ""),
                json.dumps(mgpud.requests).replace(where, ""),
                sorted(os.listdir(node.root / "bundle")),
            )
        )
    for by_python, by_mgpud in zip(*told, strict=True):
        assert by_python == by_mgpud


# --- mgpud's end ---


@pytest.fixture
def world() -> Iterator[World]:
    made = World(NodeConfig())
    yield made
    for one in list(made.grants):
        made.life.release(one)
    made.close()


def bind(source: str) -> dict[str, Any]:
    return {"destination": "/x", "type": "bind", "source": source}


def test_prepared_grant_is_admitted_once(world: World) -> None:
    reply, new = talk(world, as_text(annotations=ASKING))
    [given] = world.grants
    assert new["linux"]["seccomp"]["listenerMetadata"] == given.nonce
    assert given.runtime_pid == os.getpid()
    assert reply["action"] == "write"


def test_repeated_prepare_gets_the_same_grant(world: World) -> None:
    first = talk(world, as_text(annotations=ASKING))
    assert talk(world, as_text(annotations=ASKING)) == first
    assert len(list(world.grants)) == 1


def test_container_without_gpu_passes(world: World) -> None:
    assert talk(world, as_text())[0]["action"] == "pass"


def test_mount_sources_are_the_launchers_to_look_up(world: World) -> None:
    text = as_text(annotations=ASKING, mounts=[bind("/a"), bind("b"), bind("/a")])
    assert talk(world, text)[0]["paths"] == ["/a", "/b/b"]
    found = json.dumps({"found": [["/dev", -1], ["/null", -1]]}).encode()
    [reply] = talk(world, text, found)
    assert reply["error"]["code"] == "reach-beside-grant"
    [reply, _new] = talk(world, text, json.dumps({"found": [["/x", 1], ["/y", -1]]}).encode())
    assert reply["action"] == "write"


@pytest.mark.parametrize(
    "found",
    [
        b"",
        b"\xff",
        b"[" * 5000,
        b"[]",
        b'{"found":[]}',
        b'{"found":[["/x",1],["/y",1]]}',
        b'{"found":[["x",1]]}',
        b'{"found":[["/x"]]}',
        b'{"found":[["/x",1,1]]}',
        b'{"found":[["/x",-2]]}',
        b'{"found":[["/x",4294967296]]}',
        b'{"found":[["/x","1"]]}',
        b'{"found":[["/x",1.0]]}',
        b'{"found":{"/a":1}}',
    ],
)
def test_malformed_findings_go_to_the_launcher(world: World, found: bytes) -> None:
    text = as_text(annotations=ASKING, mounts=[bind("/a")])
    assert talk(world, text, found)[0]["action"] == "yourself"
    assert list(world.grants) == []


def _rules(count: int, *conditions: str) -> dict[str, Any]:
    args = [{"index": 1, "op": f"SCMP_CMP_{op}", "value": 7} for op in conditions]
    rule = {"names": ["ioctl"], "action": "SCMP_ACT_ALLOW", "args": args}
    return {"seccomp": {"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [rule] * count}}


UNUSUAL: list[dict[str, Any]] = [
    {"mounts": [bind(f"/{n}") for n in range(65)]},
    {"mounts": [bind("/a")] * (prepare.ENTRIES_MAX + 1)},
    {"mounts": [bind("/\x01")]},
    {"mounts": [bind("/ü")]},
    {"linux": _rules(prepare.IOCTL_RULES_MAX + 1)},
    {"linux": _rules(1, "LT")},
    {"linux": _rules(1, "NE", "NE", "NE")},
    {"linux": {"namespaces": [{"type": "pid", "path": "/var/run/pidns"}]}},
    {"annotations": {**ASKING, "dev.mgpu.original-sha256": "x"}},
    {"annotations": {"mgpu.dev/gpus": "ü" * 30_000}},
]


@pytest.mark.parametrize("members", UNUSUAL)
def test_unusual_spec_goes_to_the_launcher(world: World, members: dict[str, Any]) -> None:
    text = as_text(**{"annotations": ASKING, **members})
    assert talk(world, text, b"{}")[0]["action"] == "yourself"
    assert list(world.grants) == []


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("create", "--help"), {}),
        (("create", "--bundle", "/other", "c1"), {}),
        (("create", "--bundle", "b", "c1"), {"folder": "/x"}),
        (("create", "--bundle", "/b", "--config", "other.json", "c1"), {}),
        (("create", "--bundle", "/b", ""), {}),
    ],
)
def test_config_text_must_match_the_arguments(
    world: World, words: tuple[str, ...], told: dict[str, Any]
) -> None:
    assert talk(world, as_text(annotations=ASKING), words=words, **told)[0]["action"] == "yourself"


def test_refusals_are_worded_as_by_the_create_path(world: World) -> None:
    for text, says in (
        (b"[" * 100_000, "is not JSON: maximum recursion depth"),
        (b"{", "the spec /b/config.json is not JSON: Expecting property name"),
        (as_text(mounts=7), '"mounts" is "7", not an array'),
        (as_text(annotations={"mgpu.dev/typo": "1"}), "mgpu.dev/typo"),
    ):
        [reply] = talk(world, text)
        assert says in reply["error"]["message"]
    [reply] = talk(world, as_text(annotations=ASKING), words=("restore", "--bundle", "/b", "c1"))
    assert reply["action"] == "yourself"
    assert list(world.grants) == []


def test_grant_is_released_when_the_spec_cannot_be_rewritten(world: World) -> None:
    notifies = {"names": ["mount"], "action": "SCMP_ACT_NOTIFY"}
    own = {"defaultAction": "SCMP_ACT_ALLOW", "listenerPath": "/another/listener", "syscalls": [notifies]}
    foreign = {"seccomp": own}
    [reply] = talk(world, as_text(annotations=ASKING, linux={**load("runc-1.1-spec")["linux"], **foreign}))
    assert reply["error"]["code"] == "seccomp-profile"
    assert list(world.grants) == []


@pytest.mark.parametrize("exiting", [True, False])
def test_refusal_may_not_last_while_a_container_ends(world: World, exiting: bool) -> None:
    asking = {"mgpu.dev/gpus": "1000"}
    [reply] = talk(world, as_text(annotations=asking), exiting=exiting)
    assert (reply["action"], reply.get("again", False)) == ("refuse", exiting)


def test_fault_of_ours_is_not_the_containers(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def fault(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(prepare, "rewritten", fault)
    assert talk(world, as_text(annotations=ASKING))[0]["action"] == "yourself"
    assert list(world.grants) == []


def test_over_the_socket(world: World, tmp_path: Path) -> None:
    verbs = world.arbiter.verbs()

    def validate(message: dict[str, Any]) -> None:
        schemas.validate("control", message)

    made = Prepare(verbs["admit"], verbs["release"], validate, "/s")
    server = Server(str(tmp_path / "s"), verbs, validate, {"prepare": made.converse})
    server.listen()
    text = as_text(annotations=ASKING, mounts=[bind("/a")])
    request = {
        "version": 1,
        "verb": "prepare",
        "words": ["create", "--bundle", "/b", "c1"],
        "folder": "/",
        "config": "/b/config.json",
        "hook": "/h",
    }

    def launcher(packets: list[bytes], hear: int) -> list[Any]:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as peer:
            peer.connect(str(tmp_path / "s"))
            for packet in packets:
                peer.send(packet)
            return [json.loads(peer.recv(1 << 20)) for _ in range(hear)]

    async def all_of_it(ask: Callable[[], list[Any]]) -> list[Any]:
        serving = asyncio.create_task(server.serve())
        try:
            return await asyncio.to_thread(ask)
        finally:
            serving.cancel()

    begin = [json.dumps(request).encode(), text]
    found = b'{"found":[["/a",-1]]}'
    # One hangs up in the middle, and another is served all the same.
    [look] = asyncio.run(all_of_it(lambda: launcher(begin, 1)))
    assert (look["action"], list(world.grants)) == ("look", [])
    _look, write, new = asyncio.run(all_of_it(lambda: launcher([*begin, found], 3)))
    assert write["action"] == "write"
    assert new["annotations"]["mgpu.dev/memory-mib"] == "512"
    server.close()
