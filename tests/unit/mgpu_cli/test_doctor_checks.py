"""Each check of mgpu doctor, on a node that has its fault and no other."""

import errno
import json
import os
import re
import socket
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from mgpu_cli.doctor import (
    arbiter,
    cdi,
    containerd,
    docker,
    driver,
    kernel,
    kubelet,
    leftovers,
    permissions,
    podman,
    runtimes,
    start,
)
from mgpu_cli.doctor.containerd_facts import Facts
from mgpu_cli.doctor.examine import GROUPS
from mgpu_cli.doctor.finding import Group, Level
from mgpu_cli.doctor.host import NoAnswerError
from mgpu_cli.state import StateDir
from tests.unit.doctor_support import CRI, FEATURES, ROOT, RUNTIME, Change, Node

NOTE, WARN, FAIL = Level.NOTE, Level.WARN, Level.FAIL


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.name)
def test_doctor_finds_no_fault_on_a_good_node(node: Node, group: Group) -> None:
    node.with_containerd()
    node.with_podman(runtimes=f'mgpu = ["{RUNTIME}"]')
    node.socket("/var/run/docker.sock")
    node.socket(f"{ROOT}/mgpud.sock")
    assert node.faults(group) == {}


def missing(name: str) -> Change:
    return lambda node: node.path(name).unlink()


def write(name: str, text: str) -> Change:
    return lambda node: node.write(name, text)


def prints(command: str, text: str | Exception) -> Change:
    return lambda node: node.printed.update({command: text})


def refuses(call: str, error: int) -> Change:
    return lambda node: node.syscalls.update({call: error})


def health(**members: Any) -> Change:
    return lambda node: setattr(node, "health", {**(node.health or {}), **members})


def no_mgpud(node: Node) -> None:
    node.health = None


def nvidia(node: Node) -> None:
    node.write(
        "/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue\n"
    )
    for name in driver.NODES:
        node.write(name, "")


def unknown_nvidia(node: Node) -> None:
    nvidia(node)
    node.rm_rows = {}


def taken_for_another(node: Node) -> None:
    unknown_nvidia(node)
    health(rm_table="550.54", rm_table_override="550")(node)


def crun(node: Node) -> None:
    node.program("/usr/bin/crun", "crun version 1.8.1\n+SECCOMP +EBPF", "--version")


def hybrid(node: Node) -> None:
    crun(node)
    for name in ("unified", "memory"):
        node.path(f"/sys/fs/cgroup/{name}").mkdir(parents=True)


def in_crios_folder(node: Node) -> None:
    missing("/usr/bin/runc")(node)
    node.program("/usr/libexec/crio/crun", "crun version 1.8.1\n+SECCOMP +EBPF", "--version")


def old_runc(version: str) -> Change:
    return prints("/usr/bin/runc --version", f"runc version {version}")


def unguarded(node: Node) -> None:
    write("/sys/kernel/security/lsm", "lockdown,yama,bpf\n")(node)
    health(driver="nvidia")(node)


FAULTS: list[tuple[Group, Change, dict[str, Level]]] = [
    (kernel.GROUP, write("/proc/sys/kernel/osrelease", "6.1.0-18-amd64\n"), {"kernel-sync-wake-up": NOTE}),
    (kernel.GROUP, write("/proc/sys/kernel/osrelease", "5.4.0\n"), {"kernel-version": FAIL}),
    (kernel.GROUP, missing("/proc/sys/kernel/osrelease"), {"kernel-version": WARN}),
    (kernel.GROUP, refuses("kcmp", errno.ENOSYS), {"kernel-kcmp": FAIL}),
    (kernel.GROUP, refuses("fanotify", errno.ENOSYS), {"kernel-fanotify": FAIL}),
    (kernel.GROUP, refuses("pidfd_getfd", errno.EPERM), {"kernel-pidfd-getfd": FAIL}),
    (kernel.GROUP, refuses("seccomp-notify", errno.EINVAL), {"kernel-seccomp-notify": FAIL}),
    (
        kernel.GROUP,
        write("/proc/sys/kernel/seccomp/actions_avail", "kill_process allow"),
        {"kernel-user-notif": FAIL},
    ),
    (kernel.GROUP, write("/proc/sys/kernel/yama/ptrace_scope", "3"), {"kernel-ptrace-scope": FAIL}),
    (kernel.GROUP, write("/sys/fs/selinux/enforce", "1"), {"kernel-selinux": NOTE}),
    (kernel.GROUP, unguarded, {"kernel-bpf-lsm": NOTE, "kernel-file-receive": WARN}),
    (runtimes.GROUP, old_runc("1.0.3"), {"runtime-runc": FAIL}),
    (runtimes.GROUP, old_runc("of today"), {"runtime-runc": NOTE}),
    (runtimes.GROUP, prints("/usr/bin/runc --version", NoAnswerError("no")), {"runtime-runc": WARN}),
    (
        runtimes.GROUP,
        prints("/usr/bin/runc features", FEATURES.replace("NOTIFY", "LOG")),
        {"runtime-runc-seccomp": FAIL},
    ),
    (runtimes.GROUP, prints("/usr/bin/runc features", '{"linux": null}'), {"runtime-runc-seccomp": NOTE}),
    (runtimes.GROUP, crun, {}),
    (
        runtimes.GROUP,
        lambda node: node.program("/usr/bin/crun", "crun version 1.8.1\n+EBPF", "--version"),
        {"runtime-crun-seccomp": FAIL},
    ),
    (runtimes.GROUP, hybrid, {"runtime-crun-cgroups": NOTE}),
    (start.GROUP, missing("/opt/hook"), {"start-runtime": FAIL}),
    (start.GROUP, in_crios_folder, {"start-runtime": FAIL}),
    (runtimes.GROUP, missing("/usr/bin/runc"), {"runtime-none": FAIL}),
    (start.GROUP, missing(f"{ROOT}/cdi/sim.json"), {"start-cdi": FAIL}),
    (start.GROUP, write("/etc/cdi/odd.yaml", "a: [\n"), {"start-cdi": FAIL}),
    (cdi.GROUP, health(cards=3), {"cdi-fewer": NOTE}),
    (start.GROUP, health(driver="nvidia"), {"start-cdi": FAIL}),
    (driver.GROUP, no_mgpud, {"driver-none": NOTE}),
    (driver.GROUP, nvidia, {"driver-nvidia": NOTE}),
    (driver.GROUP, unknown_nvidia, {"driver-nvidia": NOTE, "driver-table": FAIL}),
    (driver.GROUP, taken_for_another, {"driver-nvidia": NOTE, "driver-table-overridden": WARN}),
    (driver.GROUP, write("/proc/driver/nvidia/version", "what"), {"driver-version": WARN}),
    (start.GROUP, health(driver_alive=False), {"start-driver": FAIL}),
    (start.GROUP, no_mgpud, {"start-mgpud": FAIL}),
    (arbiter.GROUP, health(sched_fifo=False), {"mgpud-fifo": WARN}),
    (
        arbiter.GROUP,
        health(without=["engine-status not on GPU 1: online is seen idle by fetch only"]),
        {"mgpud-without": WARN},
    ),
    (permissions.GROUP, lambda node: setattr(node, "uid", 1000), {"permissions-root": WARN}),
    (
        permissions.GROUP,
        write("/proc/100/attr/apparmor/current", "mgpud (enforce)\n"),
        {"permissions-apparmor": WARN},
    ),
    (
        start.GROUP,
        write("/proc/100/status", "CapEff:\t0000000000200000\n"),
        {"start-capabilities": FAIL},
    ),
    (
        permissions.GROUP,
        write(
            "/proc/100/limits", "Max open files            1024                 1024                 files\n"
        ),
        {"permissions-files": WARN},
    ),
    (
        start.GROUP,
        write("/proc/self/mounts", "tmpfs /run tmpfs rw,nosuid,noexec 0 0\n"),
        {"start-folder": FAIL},
    ),
    (
        start.GROUP,
        write("/proc/self/mounts", "tmpfs /run tmpfs rw,noexec 0 0\ntmpfs /run/mgpu tmpfs rw 0 0\n"),
        {},
    ),
    (permissions.GROUP, write("/proc/sys/fs/epoll/max_user_watches", "100\n"), {"permissions-epoll": WARN}),
    (permissions.GROUP, write("/proc/sys/user/max_pid_namespaces", "0\n"), {"permissions-namespaces": FAIL}),
    (
        permissions.GROUP,
        write("/proc/sys/user/max_user_namespaces", "0\n"),
        {"permissions-user-namespaces": NOTE},
    ),
]


@pytest.mark.parametrize(("group", "change", "expected"), FAULTS)
def test_doctor_finds_a_single_fault(
    node: Node, group: Group, change: Change, expected: dict[str, Level]
) -> None:
    change(node)
    assert node.faults(group) == expected


def test_every_failure_says_what_to_type(tmp_path: Path) -> None:
    silent = set()
    for number, (group, change, _) in enumerate(FAULTS):
        node = Node(tmp_path / str(number))
        change(node)
        silent |= {each.id for each in node.findings(group) if each.level >= WARN and not each.line}
    assert silent == set()


def test_container_whose_grant_cannot_be_read_is_found(node: Node) -> None:
    assert node.health is not None
    node.health["lost"] = ["run-681d2c3e"]
    found = node.only(arbiter.GROUP)
    assert (found.id, found.level) == ("mgpud-lost", Level.FAIL)
    assert "run-681d2c3e: its grant cannot be read; end it" in found.what


@pytest.mark.parametrize("changed", ["/etc/containerd/config.toml", "/etc/containerd/conf.d/99-mgpu.toml"])
def test_containerd_that_was_not_restarted_is_found(node: Node, changed: str) -> None:
    node.with_containerd()
    config = node.path("/etc/containerd/config.toml")
    node.write(changed, config.read_text())
    node.write(
        "/etc/containerd/config.toml", f'imports = ["/etc/containerd/conf.d/*.toml"]\n{config.read_text()}'
    )
    started_s = node.path("/run/containerd/containerd.sock").stat().st_mtime
    for path in (config, node.path(changed)):
        os.utime(path, (started_s - 1, started_s - 1))
    assert node.faults(start.GROUP) == {}
    os.utime(node.path(changed), (started_s + 1, started_s + 1))
    found = node.only(start.GROUP)
    assert (found.id, found.level, found.line) == ("start-engine", WARN, "systemctl restart containerd")
    assert found.what == f"{changed} is newer than the containerd that runs"


def test_why_there_is_no_fifo(node: Node) -> None:
    assert node.health is not None
    node.health["sched_fifo"] = False
    node.write("/proc/100/status", "CapEff:\t0000000000000000\n")
    assert "CAP_SYS_NICE" in node.only(arbiter.GROUP).what
    node.write("/proc/100/status", "CapEff:\t000001ffffffffff\n")
    node.write("/proc/100/cgroup", "3:cpuset:/\n2:cpu,cpuacct:/system.slice/mgpud\n")
    node.write("/sys/fs/cgroup/cpu/system.slice/mgpud/cpu.rt_runtime_us", "0\n")
    node.write("/sys/fs/cgroup/cpu/system.slice/cpu.rt_runtime_us", "0\n")
    found = node.only(arbiter.GROUP)
    assert "cpu.rt_runtime_us" in found.what
    below = "/sys/fs/cgroup/cpu/system.slice"
    assert re.findall(r"echo [1-9]\d+ > (\S+)", found.line) == [
        f"{below}/cpu.rt_runtime_us",
        f"{below}/mgpud/cpu.rt_runtime_us",
    ]
    assert "CAP_SYS_NICE" not in found.line
    node.write("/proc/sys/kernel/sched_rt_runtime_us", "0\n")
    assert "sched_rt_runtime_us is 0" in node.only(arbiter.GROUP).what


@pytest.mark.parametrize(
    ("docker_info", "expected"),
    [
        ({"ServerVersion": "20.10", "Runtimes": {"runc": {"path": "runc"}}}, {"docker-runtime": WARN}),
        (
            {"ServerVersion": "20.10", "Runtimes": {"g": {"path": "/nowhere/mgpu-runtime"}}},
            {"docker-runtime-path": FAIL},
        ),
        ({"ServerVersion": "25.0", "Runtimes": {"g": {"runtimeType": "io.containerd.mgpu.v2"}}}, {}),
        (
            {
                "ServerVersion": "20.10",
                "DefaultRuntime": "nvidia",
                "Runtimes": {"mgpu": {"path": RUNTIME}, "nvidia": {"path": "nvidia-container-runtime"}},
            },
            {"docker-default": NOTE},
        ),
        (NoAnswerError("it does not answer"), {"docker-silent": WARN}),
        (["what"], {"docker-odd": WARN}),
        ({"Runtimes": None}, {"docker-odd": WARN}),
    ],
)
def test_docker(node: Node, docker_info: Any, expected: dict[str, Level]) -> None:
    node.socket("/var/run/docker.sock")
    node.docker = docker_info
    assert node.faults(docker.GROUP) == expected


def test_docker_that_does_not_run(node: Node) -> None:
    assert node.faults(docker.GROUP) == {}
    node.program("/usr/bin/dockerd")
    assert node.faults(docker.GROUP) == {"docker-stopped": NOTE}


RUNC_HANDLER = {"runtime_type": "io.containerd.runc.v2"}


@pytest.mark.parametrize(
    ("handler", "expected"),
    [
        ({}, {}),
        ({**RUNC_HANDLER, "options": {"BinaryName": RUNTIME}}, {}),
        ({**RUNC_HANDLER, "options": {"BinaryName": "/x/mgpu-runtime"}}, {"containerd-binary": FAIL}),
        (RUNC_HANDLER, {"containerd-handler": WARN}),
        ({"pod_annotations": []}, {"containerd-pod-annotations": WARN}),
        ({"pod_annotations": ["*"]}, {"containerd-pod-annotations": WARN}),
        ({"container_annotations": ["mgpu.dev/*"]}, {"containerd-container-annotations": WARN}),
        ({"pod_annotations": ["*/*"]}, {}),
    ],
)
def test_containerd(node: Node, handler: dict[str, Any], expected: dict[str, Level]) -> None:
    node.with_containerd(**handler)
    assert node.faults(containerd.GROUP) == expected


def test_containerd_says_which_annotations_do_not_pass(node: Node) -> None:
    node.with_containerd(
        pod_annotations=["mgpu.dev/*", "*.tencent.com/*", "vke.volcengine.com/*", "tencent.com/*"]
    )
    what = node.only(containerd.GROUP).what
    assert "aliyun.com/gpu-count, aliyun.com/gpu-mem" in what
    assert "tencent" not in what


def test_containerd_without_the_shim(node: Node) -> None:
    node.with_containerd()
    node.path("/usr/bin/containerd-shim-mgpu-v2").unlink()
    assert node.faults(containerd.GROUP) == {"containerd-shim": FAIL}


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (Facts(error="it does not answer in time"), {"containerd-silent": WARN}),
        (Facts("1.6.20", broken=dict.fromkeys(CRI, "no CNI")), {"containerd-cri": NOTE}),
        (Facts("2.1.9", frozenset({"io.containerd.cri.v1.runtime"})), {"containerd-cri": NOTE}),
        (Facts("2.1.9", CRI | {"io.containerd.cri.v1.runtime"}), {}),
    ],
)
def test_containerd_of_itself(node: Node, facts: Facts, expected: dict[str, Level]) -> None:
    node.with_containerd()
    node.facts = facts
    assert node.faults(containerd.GROUP) == expected


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("", "it came with containerd 1.7"),
        ("enable_cdi = false", "enable_cdi is false"),
        ("enable_cdi = true", ""),
    ],
)
def test_containerd_hands_on_what_claims_need(node: Node, line: str, says: str) -> None:
    node.with_containerd()
    dumped = node.printed["/usr/bin/containerd config dump"]
    cri = f'\n[plugins."io.containerd.grpc.v1.cri"]\n{line}\n'
    node.printed["/usr/bin/containerd config dump"] = f"{dumped}{cri}"
    assert node.faults(containerd.GROUP) == {}, "without kubelet"
    node.path("/var/lib/kubelet").mkdir(parents=True)
    assert node.faults(containerd.GROUP) == ({"containerd-cdi": NOTE} if says else {})
    node.socket("/var/lib/kubelet/plugins/mgpu.dev/dra.sock")
    assert node.faults(containerd.GROUP) == ({"containerd-cdi": FAIL} if says else {})
    # As containerd 2 writes it, beside the table of before.
    node.printed["/usr/bin/containerd config dump"] = (
        f'{dumped}\n[plugins."io.containerd.cri.v1.runtime"]\n{line}\n'
    )
    assert node.faults(containerd.GROUP) == ({"containerd-cdi": FAIL} if says else {})
    if says:
        assert says in node.only(containerd.GROUP).what


def test_containerd_that_does_not_take_its_configuration(node: Node) -> None:
    node.with_containerd()
    node.printed["/usr/bin/containerd config dump"] = NoAnswerError("containerd: toml: line 3")
    assert "line 3" in node.only(containerd.GROUP).what


def test_containerd_that_does_not_run(node: Node) -> None:
    node.with_containerd()
    node.path("/run/containerd/containerd.sock").unlink()
    assert node.faults(containerd.GROUP) == {"containerd-stopped": NOTE}


def test_podmans_hook(node: Node) -> None:
    node.with_podman_hook("/nowhere/mgpu-runtime")
    assert node.faults(podman.GROUP) == {"podman-hook-path": FAIL}
    node.with_podman_hook(RUNTIME)
    assert node.faults(podman.GROUP) == {}
    node.write("/etc/mgpu/hooks.d/zz-mgpu.json", "{")
    assert node.faults(podman.GROUP) == {"podman-runtime": WARN}


def test_podman(node: Node) -> None:
    node.with_podman()
    assert node.faults(podman.GROUP) == {"podman-runtime": WARN}
    node.with_podman(runtimes='mgpu = ["/nowhere/mgpu-runtime"]')
    assert node.faults(podman.GROUP) == {"podman-runtime-path": FAIL}
    node.with_podman(runtimes="mgpu = [")
    assert node.faults(podman.GROUP) == {"podman-silent": WARN}
    node.with_podman(runtimes=f'mgpu = ["{RUNTIME}"]')
    node.printed["/usr/bin/podman info --format json"] = "[]"
    assert node.faults(podman.GROUP) == {"podman-odd": WARN}


def test_leftover_sockets(node: Node) -> None:
    for name in ("mgpud.sock", "holder.sock"):
        node.socket(f"{ROOT}/{name}")
    assert node.faults(leftovers.GROUP) == {}
    node.write("/proc/99/cmdline", "/opt/mgpu-holder\0--mgpud-socket\0/elsewhere/holder.sock\0")
    found = node.only(leftovers.GROUP)
    assert (found.id, found.line) == ("leftover-sockets", f"rm {ROOT}/holder.sock")


def test_leftovers_cover_every_state_socket() -> None:
    assert {path.name for path in StateDir(ROOT).sockets} == set(leftovers.SOCKETS)


def test_leftover_grants(node: Node) -> None:
    node.containers = [
        {
            "container_id": name,
            "state": state,
            "pid": pid,
            "namespace": None,
            "pod": None,
            "container": name,
            "containerd": None,
        }
        for name, state, pid in (("c1", "bound", 100), ("c2", "bound", 999), ("c3", "draining", 998))
    ]
    assert node.faults(leftovers.GROUP) == {"leftover-grants": WARN, "leftover-draining": NOTE}


def test_containers_without_a_listener(node: Node) -> None:
    found = {"namespace": "shop", "pod": "web-0", "container": "main", "containerd": None}
    node.containers = [
        {"container_id": "c1", "state": "bound", "pid": 100, "lost_listener": lost, **found}
        for lost in (False, True)
    ]
    lost = node.only(leftovers.GROUP)
    assert (lost.id, lost.level, lost.line) == ("leftover-listeners", FAIL, "kill -KILL 100")
    assert "shop/web-0/main" in lost.what


def test_leftover_cgroups(node: Node) -> None:
    for hierarchy in ("memory", "pids"):
        for name, processes in (("mgpu-old", ""), ("mgpu-new", "7\n" if hierarchy == "pids" else "")):
            node.write(f"/sys/fs/cgroup/{hierarchy}/{name}/cgroup.procs", processes)
    found = node.only(leftovers.GROUP)
    assert found.id == "leftover-cgroups"
    assert "mgpu-old" in found.what
    assert "mgpu-new" not in found.what


def test_leftover_mounts(node: Node) -> None:
    node.write("/proc/self/mounts", f"overlay {ROOT}/run\\040one/rootfs overlay rw 0 0\n")
    assert node.faults(leftovers.GROUP) == {}
    node.health = None
    assert node.only(leftovers.GROUP).line == f"umount '{ROOT}/run one/rootfs'"


def test_ids_are_kebab_case_and_of_one_meaning(tmp_path: Path) -> None:
    for number, (group, change, _) in enumerate(FAULTS):
        node = Node(tmp_path / str(number))
        change(node)
        for each in node.findings(group):
            assert each.id.replace("-", "").isalnum()
            assert each.id == each.id.lower()
            assert json.loads(json.dumps(each.to_json()))["level"] in {"ok", "note", "warn", "fail"}


def test_nvidias_own_plugin_beside_mgpu_is_found_while_it_listens() -> None:
    # The path of a socket is short.
    with TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as plugin:
        node = Node(Path(folder))
        path = node.path(f"{kubelet.ROOT}/device-plugins/nvidia-gpu.sock")
        path.parent.mkdir(parents=True)
        node.health = {**(node.health or {}), "driver": "nvidia"}
        plugin.bind(os.fspath(path))
        plugin.listen()
        assert node.faults(kubelet.GROUP) == {"two-plugins": FAIL}
        plugin.close()
        assert node.faults(kubelet.GROUP) == {}
