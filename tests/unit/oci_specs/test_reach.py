"""Which specs reach NVIDIA nodes: what real engines write, and one thing at a time on top of it."""

import copy
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from native_sched.daemon.control.resolved_paths import NotHereError, ResolvedPaths
from oci_specs.reach import HOST_CAPABILITIES, Host, nvidia_majors, others_processes, reach
from oci_specs.refusal import Refusal
from tests.support.places import REPOSITORY
from tests.unit.spec_support import CAPS, DENY_ALL, PROC_DEVICES, SPECS, UVM, FakeHost, bind, load, ways


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("docker-20.10-default", []),
        ("docker-20.10-unconfined", []),
        ("docker-20.10-device-fuse", []),
        ("containerd-1.6-default", []),
        ("podman-4.3-default", []),
        ("runc-1.1-spec", []),
        ("crun-1.8-spec", []),
        ("docker-20.10-privileged", [("cgroup", "device rule a *:* rwm")]),
        ("containerd-1.6-privileged", [("cgroup", "device rule a *:* rwm")]),
        ("podman-4.3-privileged", [("cgroup", "device rule a *:* rwm")]),
        (
            "docker-20.10-device-nvidia98",
            [("device", "/dev/nvidia98"), ("device", "device rule c 195:98 rwm")],
        ),
        (
            "podman-4.3-device-nvidia99",
            [("device", "/dev/nvidia99"), ("device", "device rule c 195:99 rwm")],
        ),
        ("docker-20.10-cgroup-rule-195", [("device", "device rule c 195:* rwm")]),
        ("docker-20.10-volume-dev", [("tree", "/dev on /hostdev")]),
        ("podman-4.3-volume-dev", [("tree", "/dev on /hostdev")]),
    ],
)
def test_specs_of_engines_have_the_expected_ways(name: str, expected: list[tuple[str, str]]) -> None:
    assert ways(load(name)) == expected


def test_every_stored_spec_is_in_the_table() -> None:
    assert len(list(SPECS.glob("*.json"))) == 15


@pytest.mark.parametrize(
    ("device", "found"),
    [
        ({"path": "/dev/nvidia0", "type": "c", "major": 195, "minor": 0}, True),
        ({"path": "/dev/nvidiactl", "type": "c", "major": 1, "minor": 3}, True),
        ({"path": "//dev/./x/../nvidia-caps/nvidia-cap1", "type": "c", "major": 1, "minor": 3}, True),
        ({"path": "/dev/innocent", "type": "c", "major": 195, "minor": 255}, True),
        ({"path": "/dev/innocent", "type": "u", "major": UVM, "minor": 0}, True),
        ({"path": "/innocent", "type": "c", "major": CAPS, "minor": 2}, True),
        ({"path": "/dev/innocent", "type": "b", "major": 195, "minor": 0}, False),
        ({"path": "/dev/null", "type": "c", "major": 1, "minor": 3}, False),
        ({"path": "/dev/null"}, False),
        ({"path": "/opt/dev/nvidia0", "type": "p"}, False),
    ],
)
def test_device(device: dict[str, Any], found: bool) -> None:
    spec = load("docker-20.10-default")
    spec["linux"]["devices"].append(device)
    assert ways(spec) == ([("device", device["path"])] if found else [])


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ([DENY_ALL], None),
        # The OCI defaults let everything be made and nothing be opened.
        (
            [
                DENY_ALL,
                {"allow": True, "type": "c", "access": "m"},
                {"allow": True, "type": "b", "access": "m"},
            ],
            None,
        ),
        ([DENY_ALL, {"allow": True, "type": "c", "major": 1, "minor": 3, "access": "rwm"}], None),
        ([DENY_ALL, {"allow": True, "type": "b", "access": "rwm"}], None),
        ([{"allow": False}], None),
        ([], "no device rules"),
        ([{"allow": True}], "a *:* rwm"),
        ([{"allow": True, "type": "a", "access": "r"}], "a *:* r"),
        # Of such a rule, runc looks at no more, and version 1 of cgroups neither.
        ([DENY_ALL, {"allow": True, "type": "a", "access": "m"}], "a *:* m"),
        ([DENY_ALL, {"allow": True, "major": 7, "minor": 7, "access": "rw"}], "a 7:7 rw"),
        ([{"allow": True}, {"allow": False, "type": "a", "major": 7, "minor": 7}], "a *:* rwm"),
        ([DENY_ALL, {"allow": True, "type": "c", "access": "w"}], "c *:* w"),
        ([DENY_ALL, {"allow": True, "type": "c", "major": -1, "minor": -1, "access": "rwm"}], "c *:* rwm"),
        ([DENY_ALL, {"allow": True, "type": "c", "major": 195, "access": "rw"}], "c 195:* rw"),
        ([DENY_ALL, {"allow": True, "type": "c", "major": 195, "minor": 0, "access": "r"}], "c 195:0 r"),
        ([DENY_ALL, {"allow": True, "type": "c", "major": UVM, "access": "rw"}], f"c {UVM}:* rw"),
        ([DENY_ALL, {"allow": True, "type": "c", "minor": 0, "access": "rw"}], "c *:0 rw"),
        # The last rule decides.
        ([{"allow": True, "access": "rwm"}, DENY_ALL], None),
        # To programs of runc and crun under version 2 these are c *:* and c 195:0.
        ([DENY_ALL, {"allow": True, "type": "c", "major": -2, "minor": -3, "access": "rw"}], "c -2:-3 rw"),
        (
            [DENY_ALL, {"allow": True, "type": "c", "major": 2**32 + 195, "minor": 2**32, "access": "rw"}],
            f"c {2**32 + 195}:{2**32} rw",
        ),
        ([{"allow": True}, {"allow": False, "type": "c", "major": -2, "access": "rwm"}], "a *:* rwm"),
        ([{"allow": True, "type": "c", "major": 195, "access": "rw"}, DENY_ALL], None),
        # Denied in part only.
        (
            [{"allow": True, "access": "rwm"}, {"allow": False, "type": "c", "major": 195, "access": "r"}],
            "a *:* rwm",
        ),
        (
            [{"allow": True, "access": "rwm"}, {"allow": False, "type": "c", "major": 195, "minor": 0}],
            "a *:* rwm",
        ),
        ([{"allow": True, "access": "rwm"}, {"allow": False, "type": "c", "major": 195}], "a *:* rwm"),
        (
            [{"allow": True, "access": "rwm"}]
            + [{"allow": False, "type": "c", "major": major} for major in (195, UVM, CAPS)],
            None,
        ),
    ],
)
def test_device_rules(rules: list[dict[str, Any]], expected: str | None) -> None:
    spec = load("docker-20.10-default")
    spec["linux"]["resources"]["devices"] = rules
    text = expected if expected == "no device rules" else f"device rule {expected}"
    # A rule about NVIDIA's numbers alone goes with the nodes when there is a grant.
    how = "device" if expected and expected.startswith(("c 195:", f"c {UVM}:")) else "cgroup"
    assert ways(spec) == ([(how, text)] if expected else [])


ANY_7_1 = {"allow": True, "type": "a", "major": 7, "minor": 1, "access": "rwm"}


@pytest.mark.parametrize(
    ("rule", "opens"),
    [
        (ANY_7_1, False),
        ({"allow": True, "major": 7, "minor": 1, "access": "rwm"}, False),
        ({"allow": True, "type": "a", "access": "m"}, False),
        ({"allow": True, "type": "a", "major": 195, "minor": 0, "access": "rw"}, True),
        ({"allow": True, "type": "a", "major": 7, "access": "rw"}, False),
        ({"allow": True, "type": "a", "minor": 0, "access": "rw"}, True),
        ({"allow": True, "type": "a", "major": -2, "minor": -2, "access": "r"}, True),
        ({"allow": True}, True),
    ],
)
def test_crun_under_one_hierarchy_minds_the_numbers_of_any_type(rule: dict[str, Any], opens: bool) -> None:
    spec = load("docker-20.10-default")
    spec["linux"]["resources"]["devices"] = [DENY_ALL, rule]
    assert [how for how, _ in ways(spec, FakeHost(any_type_keeps_numbers=True))] == (
        ["cgroup"] if opens else []
    )
    assert [how for how, _ in ways(spec, FakeHost())] == ["cgroup"]


@pytest.mark.parametrize(
    ("says", "one_hierarchy", "minds"),
    [
        ("crun version 1.21", True, True),
        ("crun version 1.21", False, False),
        ("runc version 1.1.5", True, False),
        ("", True, False),
        (None, True, False),
    ],
)
def test_whose_numbers_count(
    says: str | None, one_hierarchy: bool, minds: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # By its own words: a runtime of any other kind may be called crun.
    runtime = tmp_path / "crun"
    if says is not None:
        runtime.write_text(f"#!/bin/sh\n[ $1 = --version ] && echo '{says}'\n")
        runtime.chmod(0o755)
    controllers = tmp_path / "cgroup.controllers"
    if one_hierarchy:
        controllers.touch()
    monkeypatch.setattr("oci_specs.reach._ONE_HIERARCHY", str(controllers))
    assert Host(str(runtime)).any_type_keeps_numbers() == minds
    assert not Host().any_type_keeps_numbers()


def test_mgpud_leaves_such_a_rule_to_the_launcher_which_knows_its_runtime() -> None:
    spec = load("docker-20.10-default")
    spec["linux"]["resources"]["devices"] = [DENY_ALL, ANY_7_1]
    with pytest.raises(NotHereError):
        ways(spec, ResolvedPaths())
    # What is open by any runtime is no question.
    spec["linux"]["resources"]["devices"] = [{"allow": True}]
    assert [how for how, _ in ways(spec, ResolvedPaths())] == ["cgroup"]


@pytest.mark.parametrize("rootless", [True, False])
def test_rules_count_in_a_user_namespace_of_roots_engine(rootless: bool) -> None:
    spec = load("docker-20.10-privileged")
    spec["linux"]["namespaces"].append({"type": "user"})
    expected = [] if rootless else [("cgroup", "device rule a *:* rwm")]
    assert ways(spec, FakeHost(rootless=rootless)) == expected


def test_no_rules_in_a_user_namespace_are_as_podman_5_has_it() -> None:
    spec = load("docker-20.10-default")
    spec["linux"]["namespaces"].append({"type": "user"})
    del spec["linux"]["resources"]["devices"]
    assert ways(spec) == []


@pytest.mark.parametrize(
    ("kind", "name", "found"),
    [
        *(("bounding", name, name) for name in HOST_CAPABILITIES),
        ("ambient", "cap_sys_admin", "CAP_SYS_ADMIN"),
        ("permitted", "19", "19"),
        ("effective", "CAP_SYS_NICE", None),
        ("bounding", "CAP_MKNOD", None),
    ],
)
def test_capabilities_that_amount_to_the_host(kind: str, name: str, found: str | None) -> None:
    spec = load("docker-20.10-default")
    assert others_processes(spec, FakeHost()) == []
    spec["process"]["capabilities"] = {kind: [name]}
    expected = [{"how": "capability", "detail": found}] if found else []
    assert others_processes(spec, FakeHost()) == expected
    spec["linux"]["namespaces"].append({"type": "user"})
    assert others_processes(spec, FakeHost()) == []


def test_pages_name_the_capabilities_that_amount_to_the_host() -> None:
    page = (
        (REPOSITORY / "docs/boundary.md")
        .read_text()
        .partition("### Capabilities that amount to the host")[2]
    )
    rows = re.findall(r"^\| (CAP_\S+) \|", page.partition("\n## ")[0], re.MULTILINE)
    assert rows == list(HOST_CAPABILITIES)
    security = (REPOSITORY / "SECURITY.md").read_text()
    assert [name for name in rows if name.removeprefix("CAP_") not in security] == []


def test_pid_namespace_of_other_containers_is_a_way_to_processes_without_a_filter() -> None:
    spec = load("docker-20.10-default")
    [pids] = [one for one in spec["linux"]["namespaces"] if one["type"] == "pid"]
    pids["path"] = "/proc/1234/ns/pid"
    [way] = others_processes(spec, FakeHost())
    assert way == {"how": "hostpid", "detail": "a pid namespace that it shares with other containers"}


@pytest.mark.parametrize(
    ("mount", "source"),
    [
        (bind("/dev"), "/dev"),
        (bind("/dev/"), "/dev"),
        (bind("//dev/../dev/."), "/dev"),
        (bind("/"), "/"),
        (bind("/dev", type="none"), "/dev"),
        (bind("/dev", options=None), "/dev"),
        (bind("/dev/nvidia0"), "/dev/nvidia0"),
        (bind("/dev/nvidia-caps"), "/dev/nvidia-caps"),
        (bind("/link-to-dev"), "/dev"),
        (bind("/proc/driver/nvidia/capabilities"), "/proc/driver/nvidia/capabilities"),
        (bind("/srv/card"), "/srv/card"),
        (bind("nodes/card"), "/bundle/nodes/card"),
        ({"destination": "/mnt", "type": "devtmpfs", "source": "x"}, "devtmpfs"),
        (bind("/dev/shm"), None),
        (bind("/dev/fuse"), None),
        (bind("/devices"), None),
        (bind("/proc"), None),
        (bind("dev"), None),
        (bind("/dev", type="tmpfs", options=["nosuid"]), None),
        ({"destination": "/dev", "type": "tmpfs", "source": "/dev"}, None),
        ({"destination": "/dev"}, None),
    ],
)
def test_mount(mount: dict[str, Any], source: str | None) -> None:
    host = FakeHost({"/link-to-dev": "/dev"}, {"/srv/card": 195, "/bundle/nodes/card": UVM, "/dev/fuse": 10})
    spec = load("docker-20.10-default")
    spec["mounts"].append(mount)
    how = "tree" if source in ("/", "/dev", "devtmpfs") else "mount"
    assert ways(spec, host) == ([(how, f"{source} on {mount['destination']}")] if source else [])


@pytest.mark.parametrize(
    ("source", "how"),
    [
        ("/dev/dri/renderD128", "mount"),
        ("/dev/dri/card1", "mount"),
        ("/dev/dri/card0", None),
        ("/dev/dri/renderD129", None),
        ("/dev/dri/by-path", "mount"),
        ("/dev/dri", "tree"),
        ("/srv/render", "mount"),
        ("/dev/drivel", None),
    ],
)
def test_mount_of_drm_nodes(source: str, how: str | None) -> None:
    spec = load("docker-20.10-default")
    spec["mounts"].append(bind(source))
    nodes = {source: 226} if source.startswith("/srv") else {}
    assert ways(spec, FakeHost(nodes=nodes, drm={1, 128})) == ([(how, f"{source} on /mnt")] if how else [])
    assert ways(spec, FakeHost(nodes=nodes)) == []


@pytest.mark.parametrize(
    ("rule", "found"),
    [
        ({"allow": True, "type": "c", "major": 226, "minor": 128, "access": "rw"}, "device"),
        ({"allow": True, "type": "c", "major": 226, "minor": 0, "access": "rwm"}, None),
        ({"allow": True, "type": "c", "major": 226, "access": "rwm"}, "cgroup"),
        ({"allow": True, "type": "c", "major": 226, "minor": -1, "access": "m"}, None),
    ],
)
def test_rules_for_drm_nodes(rule: dict[str, Any], found: str | None) -> None:
    spec = load("docker-20.10-default")
    spec["linux"]["resources"]["devices"].append(rule)
    assert [how for how, _detail in ways(spec, FakeHost(drm={128}))] == ([found] if found else [])
    assert ways(spec, FakeHost()) == []


def test_drm_device_of_nvidia() -> None:
    spec = load("docker-20.10-default")
    spec["linux"]["devices"] = [
        {"path": f"/dev/dri/renderD{minor}", "type": "c", "major": 226, "minor": minor}
        for minor in (128, 129)
    ]
    assert ways(spec, FakeHost(drm={128})) == [("device", "/dev/dri/renderD128")]


@pytest.mark.parametrize("stage", ["prestart", "createRuntime", "createContainer", "startContainer"])
@pytest.mark.parametrize(
    ("path", "how"),
    [
        ("/usr/bin/nvidia-container-runtime-hook", "hook"),
        ("/usr/bin/nvidia-container-toolkit", "hook"),
        ("/usr/bin/nvidia-ctk", "cdi"),
        ("/usr/bin/nvidia-cdi-hook", "cdi"),
        ("/usr/bin/other-hook", None),
    ],
)
def test_hook(stage: str, path: str, how: str | None) -> None:
    spec = load("docker-20.10-default")
    spec["hooks"].setdefault(stage, []).append({"path": path})
    assert ways(spec) == ([(how, f"{stage} hook {path.rpartition('/')[2]}")] if how else [])


def test_majors_of_a_host() -> None:
    assert nvidia_majors(PROC_DEVICES) == {195, UVM, CAPS}
    assert nvidia_majors("") == {195}
    assert 195 in Host().majors()


def test_host_tells_nodes(tmp_path: Path) -> None:
    host = Host()
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("/dev/null")
    assert host.character_major(str(tmp_path / "link")) == 1
    assert host.resolve(str(tmp_path / "link")) == "/dev/null"
    assert host.character_major(str(tmp_path / "file")) is None
    assert host.character_major(str(tmp_path / "missing")) is None
    assert host.character_major("a\0b") is None


@pytest.mark.parametrize("source", ["/a\0b", "/\ud800"])
def test_source_that_no_file_can_have_is_refused(source: str) -> None:
    with pytest.raises(Refusal, match="is not a path"):
        reach({"mounts": [{"type": "bind", "source": source}]}, "/bundle", Host())


@pytest.mark.parametrize(
    "spec",
    [
        {"linux": []},
        {"linux": {"devices": {}}},
        {"linux": {"devices": ["/dev/nvidia0"]}},
        {"linux": {"devices": [{"path": 1}]}},
        {"linux": {"devices": [{"path": "/x", "type": "c", "major": "195"}]}},
        {"linux": {"devices": [{"path": "/x", "type": "c", "major": True}]}},
        {"linux": {"resources": {"devices": [{"allow": True, "access": 7}]}}},
        {"mounts": "none"},
        {"mounts": [{"type": "bind", "source": []}]},
        {"hooks": {"prestart": {"path": "x"}}},
    ],
)
def test_wrong_types_are_refused(spec: dict[str, Any]) -> None:
    with pytest.raises(Refusal) as refusal:
        ways({"linux": {"resources": {"devices": [DENY_ALL]}}, **spec})
    assert refusal.value.code == "bad-spec"


rule = st.fixed_dictionaries(
    {"allow": st.booleans()},
    optional={
        "type": st.sampled_from(["", "a", "b", "c"]),
        "major": st.sampled_from([-1, -2, 1, 195, 2**32 + 195, None]),
        "minor": st.sampled_from([-1, -2, 0, 255, 2**32, None]),
        "access": st.sampled_from(["", "r", "w", "m", "rw", "rwm"]),
    },
)


@given(rules=st.lists(rule, min_size=1, max_size=6))
def test_rules_agree_with_the_kernel(rules: list[dict[str, Any]]) -> None:
    """Never unnoticed: whatever minor and access the rules let through, evaluated one device at a time."""

    def covers(rule: dict[str, Any], minor: int, access: str) -> bool:
        # A negative number is any, and one beyond 32 bits what is left of it, as in a runtime's program.
        return (
            rule.get("type", "") in ("", "a", "c")
            and rule.get("major") in (None, -1, -2, 195, 2**32 + 195)
            and rule.get("minor") in (None, -1, -2, minor, 2**32 + minor)
            and access in (rule.get("access") or "rwm")
        )

    def may_open(minor: int, access: str) -> bool:
        # Denied to begin with, as with runc; without any rule crun would allow.
        verdict = False
        for rule in rules:
            if covers(rule, minor, access):
                verdict = rule["allow"]
        return verdict

    spec = load("runc-1.1-spec")
    spec["linux"]["resources"]["devices"] = copy.deepcopy(rules)
    opened = any(may_open(minor, access) for minor in (0, 255, 7) for access in "rw")
    if opened:
        assert ways(spec)
        assert ways(spec, FakeHost(any_type_keeps_numbers=True))
