"""How a grant changes a spec, and above all what it leaves alone."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oci_specs import edits
from oci_specs.refusal import Refusal
from tests.create_path import NONCE, grant
from tests.unit.spec_support import (
    DENY_ALL,
    HOOK,
    LISTENER,
    SOCKET,
    SPECS,
    FakeHost,
    apply,
    bind,
    load,
    ways,
)


def hook_entry(verb: str) -> dict[str, Any]:
    args = ["mgpu-hook", verb, "--socket", str(SOCKET), "--grant", NONCE]
    return {"path": HOOK, "args": args, "timeout": 30}


def test_two_cards_on_docker() -> None:
    spec = load("docker-20.10-default")
    mount = bind("/opt/mgpu/lib/mgpu/sim/libcuda.so.1", destination="/usr/lib/libcuda.so.1")
    given = grant(SOCKET, LISTENER, cards=2, mounts=[mount], env=["A=1", "PATH=/sim"])
    new = apply(spec, given)
    assert [device["path"] for device in new["linux"]["devices"]] == [
        "/dev/nvidiactl",
        "/dev/nvidia-uvm",
        "/dev/nvidia0",
        "/dev/nvidia1",
    ]
    rules = new["linux"]["resources"]["devices"]
    assert rules[:-1] == spec["linux"]["resources"]["devices"]
    assert rules[-1] == {"allow": True, "type": "c", "major": 1, "minor": 3, "access": "rw"}
    assert new["mounts"] == [*spec["mounts"], mount]
    assert new["process"]["env"] == ["HOSTNAME=c0ffee", "A=1", "PATH=/sim"]
    assert new["hooks"] == {
        "prestart": spec["hooks"]["prestart"],
        "createRuntime": [hook_entry("bind")],
        "poststop": [hook_entry("release")],
    }
    assert new["linux"]["seccomp"]["listenerPath"] == str(LISTENER)
    assert new["linux"]["seccomp"]["listenerMetadata"] == NONCE
    assert new["annotations"] == {edits.ORIGINAL_SHA256: "ab" * 32}
    untouched = set(spec) - {"linux", "mounts", "process", "hooks"}
    assert {name: new[name] for name in untouched} == {name: spec[name] for name in untouched}
    assert list(new)[: len(spec)] == list(spec)


def test_nvidia_parts_of_the_spec_are_removed() -> None:
    spec = load("docker-20.10-device-nvidia98")
    spec["linux"]["devices"] += [
        {"path": "/dev/fuse", "type": "c", "major": 10, "minor": 229},
        {"path": "/dev/odd", "type": "c", "major": 195, "minor": 7},
    ]
    spec["mounts"] += [
        bind("/dev/nvidia3"),
        bind("/proc/driver/nvidia/gpus"),
        bind("/srv/data"),
        bind("/srv/card"),
    ]
    spec["hooks"]["prestart"] += [
        {"path": "/usr/bin/nvidia-container-runtime-hook"},
        {"path": "/usr/bin/cni"},
    ]
    spec["hooks"]["createContainer"] = [{"path": "/usr/bin/nvidia-ctk"}]
    new = apply(spec, grant(SOCKET, LISTENER), FakeHost(nodes={"/srv/card": 195}))
    paths = [device["path"] for device in new["linux"]["devices"]]
    assert paths == ["/dev/fuse", "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia0"]
    assert [mount["source"] for mount in new["mounts"] if mount["destination"] == "/mnt"] == ["/srv/data"]
    assert [hook["path"] for hook in new["hooks"]["prestart"]] == [
        spec["hooks"]["prestart"][0]["path"],
        "/usr/bin/cni",
    ]
    assert new["hooks"]["createContainer"] == []
    assert {"allow": True, "type": "c", "major": 195, "minor": 98, "access": "rwm"} not in new["linux"][
        "resources"
    ]["devices"]
    # What is left are the granted nodes.
    new["linux"]["devices"] = new["linux"]["devices"][:1]
    assert ways(new) == []


def test_cdi_hooks_come_after_mgpus() -> None:
    ctk = {"path": "/usr/bin/nvidia-ctk", "args": ["nvidia-ctk", "hook", "update-ldcache"]}
    own = {"path": "/usr/bin/own"}
    spec = load("runc-1.1-spec")
    spec["hooks"] = {"createRuntime": [own], "unknownStage": [1]}
    new = apply(spec, grant(SOCKET, LISTENER, hooks={"createContainer": [ctk], "createRuntime": [ctk]}))
    assert new["hooks"] == {
        "createRuntime": [hook_entry("bind"), own, ctk],
        "unknownStage": [1],
        "createContainer": [ctk],
        "poststop": [hook_entry("release")],
    }


def in_user_namespace() -> dict[str, Any]:
    spec = load("docker-20.10-default")
    spec["linux"]["namespaces"].append({"type": "user"})
    return spec


def with_nodes_on_the_host() -> dict[str, Any]:
    given = grant(SOCKET, LISTENER)
    given["edits"]["devices"] = [
        {"path": "/dev/nvidiactl", "type": "c", "major": 195, "minor": 255},
        {
            "path": "/dev/nvidia0",
            "type": "c",
            "major": 1,
            "minor": 3,
            "hostPath": "/run/mgpu/sim/dev/nvidia0",
        },
    ]
    return given


def test_container_in_a_user_namespace_gets_the_hosts_nodes() -> None:
    """Its runtime cannot make any (mknod(2))."""
    given = with_nodes_on_the_host()
    spec = in_user_namespace()
    new = apply(spec, given)
    assert new["linux"]["devices"] == []
    assert new["mounts"][len(spec["mounts"]) :] == [
        {
            "destination": destination,
            "type": "bind",
            "source": source,
            "options": ["bind"],
        }
        for destination, source in [
            ("/dev/nvidiactl", "/dev/nvidiactl"),
            ("/dev/nvidia0", "/run/mgpu/sim/dev/nvidia0"),
        ]
    ]
    # The cgroup's rules are the same as elsewhere.
    assert new["linux"]["resources"] == apply(load("docker-20.10-default"), given)["linux"]["resources"]


def test_numbers_of_nvidias_are_denied_in_a_user_namespace_without_rules() -> None:
    spec = in_user_namespace()
    del spec["linux"]["resources"]["devices"]
    rules = apply(spec, with_nodes_on_the_host())["linux"]["resources"]["devices"]
    assert rules[0] == {"allow": False, "type": "c", "major": 195, "access": "rwm"}
    assert {rule["allow"] for rule in rules[1:] if rule["major"] == 195} == {True}


def test_path_on_the_host_is_no_member_of_a_device() -> None:
    given = grant(SOCKET, LISTENER)
    given["edits"]["devices"][0]["hostPath"] = "/run/mgpu/sim/dev/nvidiactl"
    assert all(
        "hostPath" not in device for device in apply(load("docker-20.10-default"), given)["linux"]["devices"]
    )


def test_simulated_card_without_a_node_on_the_host_is_refused_in_a_user_namespace() -> None:
    with pytest.raises(Refusal, match="has no node /dev/nvidiactl") as refused:
        apply(in_user_namespace(), grant(SOCKET, LISTENER))
    assert refused.value.code == "user-namespace"


def test_granted_places_are_taken_over() -> None:
    spec = load("runc-1.1-spec")
    spec["linux"]["devices"] = [{"path": "//dev/nv/../card", "type": "c", "major": 10, "minor": 1, "x": 1}]
    spec["mounts"].append(bind("/old", destination="/usr/lib/x/"))
    device = {"path": "/dev/card", "type": "c", "major": 1, "minor": 3}
    mount = bind("/new", destination="/usr/lib/x")
    new = apply(spec, grant(SOCKET, LISTENER, devices=[device], mounts=[mount]))
    assert new["linux"]["devices"] == [device]
    assert new["mounts"] == [*spec["mounts"][:-1], mount]


@pytest.mark.parametrize("name", ["docker-20.10-privileged", "docker-20.10-device-nvidia98"])
def test_grant_without_cards_adds_filter_and_hooks_only(name: str) -> None:
    spec = load(name)
    spec["hooks"]["prestart"].append({"path": "/usr/bin/nvidia-container-runtime-hook"})
    spec["mounts"].append(bind("/dev/nvidia3"))
    new = apply(spec, grant(SOCKET, LISTENER, cards=0))
    assert new["linux"].pop("seccomp")["listenerPath"] == str(LISTENER)
    assert new["hooks"] == {
        **spec["hooks"],
        "createRuntime": [hook_entry("bind")],
        "poststop": [hook_entry("release")],
    }
    assert new["annotations"].pop(edits.ORIGINAL_SHA256)
    spec["linux"].pop("seccomp", None)
    for name in ("linux", "mounts", "process"):
        assert new[name] == spec[name]


def test_minimal_spec_takes_edits() -> None:
    new = apply({}, grant(SOCKET, LISTENER))
    assert sorted(new) == ["annotations", "hooks", "linux", "mounts"]


@pytest.mark.parametrize("path", sorted(SPECS.glob("*.json")), ids=lambda path: path.stem)
def test_every_engine(path: Path) -> None:
    spec = json.loads(path.read_text())
    new = apply(spec, grant(SOCKET, LISTENER))
    assert json.loads(json.dumps(new)) == new
    granted = {"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia0"}
    assert {device["path"] for device in new["linux"]["devices"] if "nvidia" in device["path"]} == granted


unknown = st.dictionaries(
    st.text("xyz", min_size=3, max_size=5), st.recursive(st.integers(), st.lists, max_leaves=3), max_size=3
)


@given(
    top=unknown,
    linux=unknown,
    process=unknown,
    resources=unknown,
    annotations=st.dictionaries(st.text(), st.text()),
)
def test_unknown_members_are_carried_over(
    top: dict[str, Any],
    linux: dict[str, Any],
    process: dict[str, Any],
    resources: dict[str, Any],
    annotations: dict[str, str],
) -> None:
    spec = {
        **top,
        "process": {**process, "env": ["A=b"]},
        "linux": {**linux, "resources": {**resources, "devices": [DENY_ALL]}},
        "annotations": annotations,
    }
    new = apply(spec, grant(SOCKET, LISTENER))
    assert new.items() >= top.items()
    assert new["process"] == spec["process"]
    assert new["linux"].items() >= linux.items()
    assert new["linux"]["resources"].items() >= resources.items()
    assert (
        new["annotations"].items()
        >= {k: v for k, v in annotations.items() if k != edits.ORIGINAL_SHA256}.items()
    )


@pytest.mark.parametrize(
    ("of", "says"),
    [
        ({"mounts": [{"destination": []}]}, '"destination" is "[]", not a string'),
        ({"linux": {"devices": [{"path": 7}]}}, '"path" is "7", not a string'),
    ],
)
def test_member_of_another_type_is_the_specs_fault(of: dict[str, Any], says: str) -> None:
    with pytest.raises(Refusal) as raised:
        apply(of, grant(SOCKET, LISTENER))
    assert says in raised.value.line()
