"""What must hold of every text that mgpu reads from others, as functions of bytes: hypothesis makes its
choices from them, so that whoever chooses the bytes, a coverage-guided fuzzer or chance, makes whole messages
of them.
"""

import copy
import functools
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from native_sched.daemon.control.prepare import Prepare
from native_sched.daemon.control.server import Dialogue, Peer, Server
from native_sched.daemon.links.holder import parse
from native_sched.daemon.node.config import NodeConfig
from oci_specs import cdi, edits, reach, schemas, vocabulary
from oci_specs import parse as request_parse
from oci_specs.refusal import Refusal
from oci_specs.request import Request
from oci_specs.seccomp import rewrite
from oci_specs.seccomp.size import MAX_INSTRUCTIONS
from runtime_hook import quick_json
from tests.create_path import grant
from tests.support.libseccomp import Filter, Rejected
from tests.support.seccomp_profiles import calls, profiles
from tests.unit.arbiter_support import World
from tests.unit.seccomp_support import check
from tests.unit.spec_support import SPECS, FakeHost, load

_SETTINGS = settings(
    database=None,
    deadline=None,
    max_examples=1_000_000,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate],
)
SOCKET, LISTENER = Path("/run/mgpu/mgpud.sock"), Path("/run/mgpu/seccomp.sock")

texts = st.text(max_size=12) | st.sampled_from(
    ["", "/", "..", "nvidia", "/dev/nvidia0", "\ud800", "\x00", "-1"]
)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


def one_line(refusal: Refusal) -> None:
    """What a user is told is one line, and says something."""
    said = refusal.line()
    assert said.isprintable(), said
    assert len(said) < 4000
    assert refusal.code
    assert refusal.message
    json.dumps(refusal.to_error()).encode("ascii")


# --- annotations and environment ---

_KEYS = [key.name for key in vocabulary.KEYS]
_NAMES = st.sampled_from(
    [
        *_KEYS,
        "NVIDIA_VISIBLE_DEVICES",
        "mgpu.dev/typo",
        "MGPU_TYPO",
        "MGPU_PREFIX",
        "MGPU_SERVICE_HOST",
        "PATH",
    ]
)
_WORDS = [
    "online",
    "offline",
    "reclaimed_cores",
    "fixed-share",
    "native-burst-share",
    "0",
    "1",
    "2",
    "all",
    "none",
]
_SAID = st.one_of(
    st.integers(-2, 400).map(str),
    st.integers(0, 1 << 70).map(str),
    st.sampled_from(
        [*_WORDS, "void", "GPU-0", "GPU-0,GPU-1", "0,1", "1,,2", " 1", "1.5", "1e3", "\uff10", "8Gi", ""]
    ),
    texts,
)


@_SETTINGS
@given(st.dictionaries(_NAMES, _SAID, max_size=6), st.dictionaries(_NAMES, _SAID, max_size=4), st.booleans())
def vocabulary_keys(given_annotations: dict[str, str], env: dict[str, str], whole: bool) -> None:
    config = NodeConfig(visible_devices_all="whole-cards") if whole else NodeConfig()

    def parsed(some: dict[str, str], variables: dict[str, str]) -> Request | str | None:
        try:
            return request_parse.request(some, variables, config, container_id="c")
        except Refusal as refusal:
            one_line(refusal)
            return refusal.line()

    result = parsed(given_annotations, env)
    if not vocabulary.names_gpu(given_annotations, env):
        assert result is None or isinstance(result, str), (
            "a request of a container that nobody would ask about"
        )
    # What mgpud is sent decides as all of it would have.
    sent = vocabulary.admission_annotations(given_annotations), vocabulary.admission_env(env)
    assert parsed(*sent) == result
    if isinstance(result, Request):
        assert Request.from_json(json.loads(json.dumps(result.to_json()))) == result


# --- seccomp profiles ---


@_SETTINGS
@given(profiles(), st.booleans(), st.data())
def seccomp(of: dict[str, Any], tree: bool, data: st.DataObject) -> None:
    try:
        before = Filter(of, binary_tree=tree)
    except Rejected:
        assume(False)
    try:
        once = rewrite(of, listener_path=str(LISTENER), metadata="n")
    except Refusal as refusal:
        one_line(refusal)
        return
    assert rewrite(once, listener_path=str(LISTENER), metadata="n") == once
    after = Filter(once, binary_tree=tree)
    assert len(after.program) <= MAX_INSTRUCTIONS
    for call in data.draw(st.lists(calls(of), min_size=4, max_size=12)):
        check(before, after, call)


_ODD_PROFILE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | texts
    | st.sampled_from(["SCMP_ACT_ALLOW", "SCMP_CMP_EQ", "ioctl"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "defaultAction",
                    "syscalls",
                    "names",
                    "action",
                    "args",
                    "index",
                    "value",
                    "valueTwo",
                    "op",
                    "errnoRet",
                ]
                + ["listenerPath", "flags", "architectures", "defaultErrnoRet"]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=16,
)


# --- control messages ---

_ROOT = Peer(os.getpid(), 0)
_MEMBERS = {
    "container_id": texts | st.sampled_from(["c1", "c2"]),
    "bundle": texts | st.just("/b"),
    "rootfs": texts | st.just("/r"),
    "annotations": st.dictionaries(_NAMES, _SAID, max_size=3),
    "env": st.dictionaries(_NAMES, _SAID, max_size=3),
    "reach": st.lists(
        st.fixed_dictionaries({"how": st.sampled_from(["device", "tree", "hostpid"]), "detail": texts}),
        max_size=2,
    ),
    "seccomp_listener": st.none() | texts,
    "nonce": texts | st.sampled_from(["0", "1"]),
    "state": st.fixed_dictionaries({"id": st.sampled_from(["c1", "c2"])}, optional={"pid": values}),
    "container": texts | st.sampled_from(["c1", "c2"]),
    "class": st.sampled_from(["online", "offline"]) | texts,
    "core_percent": st.integers(-1, 200),
    "memory_mib": st.integers(-1, 1 << 65),
    "card": st.integers(-1, 3),
    "policy": st.sampled_from(["fixed-share", "native-burst-share"]) | texts,
    "since": st.integers(-1, 1 << 65),
    "words": st.sampled_from([["create", "-b", "/b", "c1"], ["run", "c2"], ["precreate"]])
    | st.lists(texts, max_size=4),
    "folder": texts | st.just("/b"),
    "config": texts | st.just("/b/config.json"),
    "hook": texts | st.just("/h"),
}
_ASKS = json.dumps({**load("runc-1.1-spec"), "annotations": {"mgpu.dev/memory-mib": "512"}}).encode()
_VERBS: dict[str, tuple[str, ...]] = {
    "admit": ("container_id", "bundle", "rootfs", "annotations", "env", "reach", "seccomp_listener"),
    "prepare": ("words", "folder", "config", "hook"),
    "bind": ("nonce", "state"),
    "release": ("nonce", "state"),
    "list": (),
    "health": (),
    "set": ("container", "class", "core_percent", "memory_mib"),
    "policy": ("card", "policy"),
    "timeline": ("since",),
    "claims": (),
}


@st.composite
def messages(draw: st.DrawFn) -> bytes:
    if draw(st.integers(0, 9)) == 0:
        return draw(st.binary(max_size=200))
    verb = draw(st.sampled_from(sorted(_VERBS)))
    message: dict[str, Any] = {"version": 1, "verb": verb}
    for name in _VERBS[verb]:
        message[name] = draw(_MEMBERS[name])
    if draw(st.integers(0, 3)) == 0:
        message[draw(st.sampled_from(sorted(message)) | texts)] = draw(values)
    if draw(st.integers(0, 15)) == 0:
        deep: Any = "x"
        for _ in range(draw(st.sampled_from([10, 200, 700, 900]))):
            deep = [deep]
        message[draw(st.sampled_from(sorted(message)))] = deep
    return json.dumps(message).encode()


def _conversed(dialogue: Dialogue, packets: list[bytes]) -> dict[str, Any]:
    """The last reply to a launcher that says these, if there is one, and else a made one."""
    said = next(dialogue)
    try:
        for packet in packets:
            said = dialogue.send(packet)
    except StopIteration as end:
        said = end.value
    reply = json.loads(said[0])
    schemas.validate("prepare#reply", reply)
    assert reply["action"] != "write" or len(said[1]) == reply["bytes"]
    dialogue.close()
    return dict(reply)


@_SETTINGS
@given(st.lists(messages(), min_size=1, max_size=5))
def control(packets: list[bytes]) -> None:
    """A mgpud with a fake engine, alive for some messages; its nonces stand for "0", "1", …"""
    world = World(NodeConfig())
    with tempfile.TemporaryDirectory() as folder:
        verbs = world.arbiter.verbs()
        validate = functools.partial(schemas.validate, "control")
        prepare = Prepare(verbs["admit"], verbs["release"], validate, "/s")
        server = Server(f"{folder}/s", verbs, validate, {"prepare": prepare.converse})
        try:
            for packet in packets:
                nonces = [grant.nonce for grant in world.grants]
                for place, nonce in enumerate(nonces):
                    packet = packet.replace(b'"nonce": "%d"' % place, b'"nonce": "%s"' % nonce.encode())
                reply = server.answer(packet, _ROOT)
                if not isinstance(reply, dict):
                    reply = _conversed(reply, [_ASKS, *packets])
                json.dumps(reply).encode()
                assert reply["version"] == 1
                if not reply["ok"]:
                    one_line(Refusal.from_error(reply["error"]))
                    assert reply["error"]["code"] != "internal"
            held = [card.memory_mib for grant in world.grants for card in grant.cards if card.index == 0]
            assert sum(held) <= 16160, "a card was given twice"
        finally:
            server.close()
            for one in list(world.grants):
                world.life.release(one)
            world.close()


@_SETTINGS
@given(
    st.binary(max_size=300)
    | values.map(lambda value: json.dumps(value).encode())
    | st.fixed_dictionaries({"state": values, "metadata": values}).map(
        lambda value: json.dumps(value).encode()
    )
)
def listener_message(text: bytes) -> None:
    try:
        container, metadata, status, pid = parse(text)
    except ValueError:
        return
    assert all(isinstance(one, str) for one in (container, metadata, status))
    assert pid >= 0


# --- OCI specs ---

_SPECS = sorted(path.stem for path in SPECS.glob("*.json"))
_PLACES = (
    "annotations",
    "process",
    "env",
    "linux",
    "devices",
    "resources",
    "mounts",
    "hooks",
    "seccomp",
    "syscalls",
)
_ENTRIES = st.sampled_from(
    [
        {"path": "/dev/nvidia0", "type": "c", "major": 195, "minor": 0},
        {"path": "/dev//nvidia0/../nvidia1", "type": "c", "major": 195, "minor": 1},
        {"allow": True, "access": "rwm"},
        {"allow": True, "type": "c", "major": 195, "minor": -1, "access": "rw"},
        {"allow": False, "access": "rwm"},
        {"destination": "/x", "type": "bind", "source": "/dev", "options": ["rbind"]},
        {"destination": "/x", "type": "none", "source": "/dev/nvidia3", "options": ["bind"]},
        {"destination": "/x", "type": "devtmpfs"},
        {"path": "/usr/bin/nvidia-ctk", "args": ["x"]},
        {"path": "/opt/nvidia-container-runtime-hook"},
        {"names": ["ioctl"], "action": "SCMP_ACT_ALLOW"},
    ]
)


@st.composite
def specs(draw: st.DrawFn) -> dict[str, Any]:
    """A real engine's, with something else in a few places."""
    spec: dict[str, Any] = copy.deepcopy(load(draw(st.sampled_from(_SPECS))))
    for _ in range(draw(st.integers(0, 4))):
        at: Any = spec
        while True:
            if isinstance(at, dict) and at:
                key: Any = draw(st.sampled_from([*sorted(at), *_PLACES]))
            elif isinstance(at, list) and at:
                key = draw(st.integers(0, len(at) - 1))
            else:
                break
            below = at.get(key) if isinstance(at, dict) else at[key]
            if isinstance(below, dict | list) and below and draw(st.integers(0, 3)):
                at = below
                continue
            at[key] = copy.deepcopy(
                draw(values | _ENTRIES | st.lists(_ENTRIES, max_size=3) | st.just(below))
            )
            break
    if draw(st.integers(0, 7)) == 0:
        spec.setdefault("linux", {})
        if isinstance(spec["linux"], dict):
            spec["linux"]["seccomp"] = draw(_ODD_PROFILE)
    return spec


def _ways(spec: dict[str, Any]) -> list[dict[str, str]]:
    return reach.reach(spec, "/bundle", FakeHost())


@_SETTINGS
@given(specs(), st.integers(0, 2))
def spec(of: dict[str, Any], cards: int) -> None:
    before = json.dumps(of)
    given_grant = grant(SOCKET, LISTENER, cards=cards)
    try:
        ways = _ways(of)
        reach.others_processes(of, FakeHost())
        new = edits.apply(
            of, given_grant, bundle="/bundle", hook="/hook", original_sha256="ab" * 32, host=FakeHost()
        )
    except Refusal as refusal:
        one_line(refusal)
        new = None
    assert json.dumps(of) == before, "the spec that came in was changed"
    if new is None:
        return
    json.dumps(new)
    if not cards:
        return
    nodes = {device["path"] for device in given_grant["edits"]["devices"]}
    for way in _ways(new):
        # What a grant replaces is gone; what it does not is what was there before, and what mgpud was told
        # of.
        if way["how"] == "device":
            assert way["detail"] in nodes or way in ways, way
        else:
            assert way["how"] in ("cgroup", "tree"), way
            assert way in ways, way
    assert [new["hooks"][stage][0]["path"] for stage in ("createRuntime", "poststop")] == ["/hook", "/hook"]


@_SETTINGS
@given(st.text(max_size=60) | values.map(json.dumps) | specs().map(json.dumps))
def quick(text: str) -> None:
    """The create path's own JSON reads and writes what Python's does."""

    def read(by: Callable[[str], Any]) -> tuple[bool, Any]:
        try:
            return True, by(text)
        except (ValueError, RecursionError):
            return False, None

    mine, theirs = read(quick_json.loads), read(json.loads)
    assert repr(mine) == repr(theirs)
    if mine[0]:
        assert quick_json.dumps(mine[1]) == json.dumps(mine[1], separators=(",", ":"))


# --- CDI specs ---

_CDI: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "cdiVersion": st.sampled_from(["0.5.0", "1.0.0", "0.6"]) | values,
        "kind": st.just("nvidia.com/gpu") | values,
    },
    optional={
        "containerEdits": st.deferred(lambda: _CDI_EDITS) | values,
        "devices": st.lists(
            st.fixed_dictionaries(
                {"name": st.sampled_from(["0", "1", "all", "x" * 70]) | values},
                optional={"containerEdits": st.deferred(lambda: _CDI_EDITS) | values},
            ),
            max_size=3,
        )
        | values,
    },
)
_CDI_EDITS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        "env": st.lists(st.sampled_from(["A=1", "B", "=x"]) | texts, max_size=3) | values,
        "deviceNodes": st.lists(
            st.fixed_dictionaries(
                {"path": st.sampled_from(["/dev/null", "/dev/nvidia0", "x"]) | values},
                optional={
                    "hostPath": st.sampled_from(["/dev/null", "/nonexistent", "/etc/passwd"]) | texts,
                    "type": st.sampled_from(["c", "b", "u", "p", "x"]) | values,
                    "major": st.integers(-1, 1 << 40) | values,
                    "minor": values,
                    "permissions": st.sampled_from(["rwm", "rwx"]) | values,
                },
            ),
            max_size=2,
        )
        | values,
        "mounts": st.lists(
            st.fixed_dictionaries({"hostPath": texts, "containerPath": st.just("/x") | values}), max_size=2
        )
        | values,
        "hooks": st.lists(
            st.fixed_dictionaries(
                {"hookName": st.sampled_from(["createContainer", "x"]), "path": st.just("/h") | values},
                optional={"args": values, "timeout": values},
            ),
            max_size=2,
        )
        | values,
    },
)


@_SETTINGS
@given(
    _CDI.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=200),
    st.sampled_from(["json", "yaml"]),
)
def cdi_spec(text: bytes, suffix: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, f"x.{suffix}").write_bytes(text)
        try:
            registry = cdi.Registry.load([folder])
            for kind in ("nvidia.com/gpu", "x/y"):
                registry.names_with_node(kind, "/dev/nvidia0")
                names = sorted(registry.names(kind))
                found = registry.edits(kind, names).to_json()
                json.dumps(found)
        except Refusal as refusal:
            one_line(refusal)


PROPERTIES: dict[str, Any] = {
    "annotations": vocabulary_keys,
    "seccomp": seccomp,
    "control": control,
    "listener_message": listener_message,
    "spec": spec,
    "quick_json": quick,
    "cdi": cdi_spec,
}
