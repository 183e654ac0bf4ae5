import copy
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from referencing import Registry, Resource

from oci_specs import schemas
from oci_specs.refusal import Refusal

GRANT: dict[str, Any] = {
    "id": "g1",
    "nonce": "0" * 32,
    "container_id": "abc",
    "class": "online",
    "policy": "fixed-share",
    "advisory": False,
    "cards": [
        {"index": 0, "minor": 0, "uuid": "GPU-0", "name": "V100", "memory_mib": 4309, "core_percent": None}
    ],
    "edits": {
        "devices": [{"path": "/dev/nvidia0", "type": "c", "major": 1, "minor": 3}],
        "mounts": [{"destination": "/usr/lib/libcuda.so.1", "source": "/x", "options": ["ro", "bind"]}],
        "env": ["NVIDIA_VISIBLE_DEVICES=void"],
        "hooks": {"createRuntime": [{"path": "/bin/mgpu-hook", "args": ["mgpu-hook", "bind"]}]},
    },
    "listener_path": "/run/mgpu/seccomp.sock",
    "socket": "/run/mgpu/mgpud.sock",
}
ADMIT: dict[str, Any] = {
    "version": 1,
    "verb": "admit",
    "container_id": "abc",
    "bundle": "/run/bundle",
    "rootfs": "/run/bundle/rootfs",
    "annotations": {"aliyun.com/gpu-mem": "8"},
    "env": {"NVIDIA_VISIBLE_DEVICES": "all"},
    "reach": [{"how": "device", "detail": "/dev/nvidia0"}],
    "seccomp_listener": None,
}
CLAIM: dict[str, Any] = {
    "uid": "5d0f6ad6-9a65-4a0e-9a3d-6e8f1f3c7b11",
    "namespace": "team-a",
    "name": "shared",
    "pods": [{"name": "web-0", "uid": "11111111-2222-3333-4444-555555555555"}],
    "requests": [
        {
            "name": "gpu",
            "qos": "online",
            "policy": None,
            "containers": 1,
            "cards": [{"uuid": "GPU-0", "memory_mib": 4096, "core_percent": None}],
        }
    ],
}
STATE = {"ociVersion": "1.0.2", "id": "abc", "status": "created", "pid": 12, "bundle": "/run/bundle"}
BIND = {"version": 1, "verb": "bind", "nonce": "0" * 32, "state": STATE}
CONTAINER = {
    "id": "g1",
    "container_id": "abc",
    "pod": None,
    "namespace": None,
    "container": "abc",
    "class": "offline",
    "policy": None,
    "advisory": True,
    "state": "bound",
    "paused": False,
    "containerd": None,
    "pid": 12,
    "cards": [
        {
            "index": 0,
            "uuid": "GPU-0",
            "memory_mib": 4309,
            "used_bytes": 1,
            "peak_bytes": 2,
            "core_percent": 30,
        }
    ],
    "sched": {
        "enabled": True,
        "busy": False,
        "throttled": False,
        "why": "idle",
        "run_ns": 1,
        "suspended_ns": 2,
        "preemptions": 3,
        "quota_percent": 30,
    },
    "processes": [{"pid": 12, "card": 0, "used_bytes": 1}],
    "created": "2025-01-02T03:04:05.678Z",
}
CARD = {
    "index": 0,
    "minor": 0,
    "uuid": "GPU-0",
    "name": "V100",
    "memory_mib": 16160,
    "policy": None,
    "granted_mib": 0,
    "used_bytes": 0,
    "containers": 0,
}
HEALTH = {
    "version": 1,
    "ok": True,
    "driver": "sim",
    "driver_version": "1",
    "rm_table": "580.65",
    "rm_table_override": None,
    "pid": 1,
    "build": "0.1.0 (1a2b3c4d5e6f)",
    "prefix": "/opt/mgpu",
    "uptime_seconds": 0.5,
    "cards": 2,
    "containers": 0,
    "listeners": 0,
    "sched_fifo": False,
    "without": ["userd not on card 0: it counts as having work"],
    "hold_ms": 100,
    "quiet_ms": 5,
    "poll_fast_us": 500,
    "driver_alive": True,
    "max_rss_kib": 40000,
}
REFUSED = {"version": 1, "ok": False, "error": {"code": "card-full", "message": "no", "hint": "wait"}}
OK = {"version": 1, "ok": True}
POLICY = {"index": 0, "policy": "fixed-share", "owner": "operator", "tenants": ["abc"]}
EVENT = [5, 4, "g-1", "suspended", None, "preempted"]
TIMELINE = {**OK, "next": 1, "lost": 0, "now_ns": 9, "events": [EVENT]}

GOOD = [
    ("grant", GRANT),
    ("control", ADMIT),
    ("control", BIND),
    ("control", {**BIND, "verb": "release"}),
    ("control", {"version": 1, "verb": "list"}),
    ("control", {"version": 1, "verb": "health"}),
    ("control#admit-reply", {**OK, "action": "pass"}),
    ("control#admit-reply", {**OK, "action": "grant", "grant": GRANT}),
    ("control", {"version": 1, "verb": "set", "container": "abc", "class": "offline"}),
    ("control", {"version": 1, "verb": "policy"}),
    ("control", {"version": 1, "verb": "policy", "cards": [0], "policy": "fixed-share"}),
    ("control", {"version": 1, "verb": "timeline", "since": 0}),
    ("control", {"version": 1, "verb": "claims"}),
    ("control", {"version": 1, "verb": "claims", "prepare": CLAIM, "unprepare": "uid-2"}),
    ("control#claims-reply", {**OK, "claims": [CLAIM]}),
    ("gpu_config", {"apiVersion": "mgpu.dev/v1", "kind": "GpuConfig", "class": "offline", "containers": 2}),
    *(
        (f"control#{verb}-reply", REFUSED)
        for verb in ("admit", "bind", "release", "list", "health", "set", "policy", "timeline", "claims")
    ),
    ("control#set-reply", {**OK, "container": {**CONTAINER, "sched": None}}),
    ("control#policy-reply", {**OK, "cards": [POLICY]}),
    ("control#timeline-reply", TIMELINE),
    ("control#bind-reply", OK),
    ("control#release-reply", OK),
    ("control#list-reply", {**OK, "now_ns": 1, "containers": [CONTAINER], "cards": [CARD]}),
    ("control#health-reply", HEALTH),
    ("node_config", {}),
]


def without(obj: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in obj.items() if key != name}


def changed(obj: dict[str, Any], value: object, *path: str | int) -> dict[str, Any]:
    copied = copy.deepcopy(obj)
    inner: Any = copied
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    return copied


BAD = [
    ("control", [], "control at $: [] is not of type 'object'"),
    ("control", {}, "is a required property"),
    ("control", {"version": 2, "verb": "list"}, "control at $.version: 1 was expected"),
    ("control", {"version": 1, "verb": "stop"}, "control at $.verb: 'stop' is not one of"),
    ("control", {"version": 1, "verb": "list", "x": 1}, "('x' was unexpected)"),
    ("control", without(ADMIT, "reach"), "'reach' is a required property"),
    (
        "control",
        changed(ADMIT, 8, "annotations", "a"),
        "control at $.annotations.a: 8 is not of type 'string'",
    ),
    ("control", changed(ADMIT, "ioctl", "reach", 0, "how"), "control at $.reach[0].how: 'ioctl'"),
    ("control", changed(ADMIT, "rootfs", "rootfs"), "control at $.rootfs: 'rootfs' does not match '^/'"),
    ("control", {**BIND, "state": {}}, "control at $.state: 'id' is a required property"),
    ("control", {**BIND, "nonce": "x" * 65}, "control at $.nonce"),
    ("control", {"version": 1, "verb": "list", "x\n": "y" * 9000}, "control at $"),
    ("control#admit-reply", {**OK, "action": "grant"}, "'grant' is a required property"),
    ("control#admit-reply", {**OK, "action": "pass", "grant": GRANT}, "False schema"),
    (
        "control#admit-reply",
        {**OK, "action": "grant", "grant": without(GRANT, "nonce")},
        "control admit-reply at $.grant: 'nonce' is a required property",
    ),
    ("control#bind-reply", {"version": 1, "ok": False}, "'error' is a required property"),
    ("control#bind-reply", {"version": 1}, "'ok' is a required property"),
    ("control#health-reply", changed(HEALTH, "amd", "driver"), "$.driver"),
    (
        "control#list-reply",
        {**OK, "now_ns": 1, "containers": [{**CONTAINER, "created": "now"}], "cards": []},
        "created",
    ),
    ("control", {"version": 1, "verb": "set", "container": "abc"}, "does not have enough properties"),
    ("control", {"version": 1, "verb": "policy", "cards": []}, "$.cards"),
    ("control", {"version": 1, "verb": "policy", "policy": "fs"}, "$.policy: 'fs' is not one of"),
    ("control", {"version": 1, "verb": "timeline", "since": -1}, "$.since"),
    ("control", {"version": 1, "verb": "claims", "unprepare": "../x"}, "$.unprepare"),
    (
        "control",
        {"version": 1, "verb": "claims", "prepare": changed(CLAIM, "../x", "uid")},
        "$.prepare.uid",
    ),
    (
        "control",
        {
            "version": 1,
            "verb": "claims",
            "prepare": changed(CLAIM, 101, "requests", 0, "cards", 0, "core_percent"),
        },
        "$.prepare.requests[0].cards[0].core_percent",
    ),
    (
        "gpu_config",
        {"apiVersion": "mgpu.dev/v1", "kind": "GpuConfig", "quota": 1},
        "'quota' was unexpected",
    ),
    (
        "control",
        {"version": 1, "verb": "timeline", "since": 1.0},
        "$.since: 1.0 is not of type 'integer'",
    ),
    ("control#timeline-reply", {**TIMELINE, "events": [EVENT[:5]]}, "$.events[0]"),
    ("control#timeline-reply", {**TIMELINE, "events": [[*EVENT, 1]]}, "$.events[0]"),
    ("grant", changed(GRANT, "G" * 32, "nonce"), "grant at $.nonce"),
    ("grant", changed(GRANT, 101, "cards", 0, "core_percent"), "grant at $.cards[0].core_percent"),
    ("grant", changed(GRANT, [], "edits", "hooks", "createRuntimes"), "'createRuntimes' was unexpected"),
    ("grant", changed(GRANT, ["=x"], "edits", "env"), "grant at $.edits.env[0]"),
    ("node_config", {"hold": 1}, "node config at $: Additional properties are not allowed"),
]


@pytest.mark.parametrize("name", schemas.NAMES)
def test_each_schema_is_a_schema(name: str) -> None:
    Draft202012Validator.check_schema(schemas.load(name))


@pytest.mark.parametrize(("name", "obj"), GOOD)
def test_good_message_is_accepted(name: str, obj: object) -> None:
    assert schemas.validate(name, obj) is obj


@pytest.mark.parametrize(("name", "obj", "fault"), BAD)
def test_bad_message_is_refused_in_one_line(name: str, obj: object, fault: str) -> None:
    with pytest.raises(Refusal) as raised:
        schemas.validate(name, obj)
    line = raised.value.line()
    assert fault in line
    assert line.isprintable()
    assert len(line) < 500


@pytest.mark.parametrize("obj", [obj for name, obj, *_ in (*GOOD, *BAD) if name == "control"])
def test_request_is_judged_as_by_the_root(obj: object) -> None:
    registry = Registry().with_resources(
        (f"{each}.schema.json", Resource.from_contents(schemas.load(each))) for each in schemas.NAMES
    )
    root = schemas.validator_class()(schemas.load("control"), registry=registry)
    told = {(error.json_path, error.message) for error in root.iter_errors(obj)}
    first = schemas.first_error("control", obj)
    if first is None:
        assert not told
    else:
        assert (first.json_path, first.message) in told


def test_objects_take_no_unknown_members_unless_they_are_the_engine_s_own() -> None:
    """Every object that mgpu itself defines is closed; OCI objects carry members of later OCI versions."""
    engine_s_own = {"devices", "mounts", "hook", "state"}

    def open_objects(schema: Any, name: str) -> set[str]:
        if not isinstance(schema, dict):
            return set()
        found = set()
        if (
            "properties" in schema
            and schema.get("type") == "object"
            and "additionalProperties" not in schema
        ):
            found.add(name)
        for key in ("properties", "$defs"):
            for inner_name, inner in schema.get(key, {}).items():
                found |= open_objects(inner, inner_name)
        for key in ("items", "then", "else"):
            found |= open_objects(schema.get(key), name)
        for inner in schema.get("anyOf", []):
            found |= open_objects(inner, name)
        return found

    for name in schemas.NAMES:
        # The root of the control schema only chooses the verb's own, closed, schema.
        assert open_objects(schemas.load(name), name) <= engine_s_own | {"control"}
