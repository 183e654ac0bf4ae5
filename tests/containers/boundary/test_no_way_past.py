"""A container that could reach an NVIDIA node past its filter does not start, unless the operator allows it;
one that starts is enforced whatever seccomp profile it came with.
"""

import json
import os
import stat
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import arbiter, host
from tests.support.arbiter import Arbiter
from tests.support.bundle import Bundle, bundle
from tests.support.commands import attempt, run
from tests.support.containerd import Containerd
from tests.support.dockerd import RUNTIME, Dockerd
from tests.support.lasting import lasting_mgpu
from tests.support.places import IMAGE_NAME
from tests.support.programs import Programs, inside
from tests.support.started import foreground

WITHOUT = "mgpu: the container can reach NVIDIA devices without a grant"
BESIDE = "mgpu: the container can reach NVIDIA devices beside its grant"
MEMORY = {"MGPU_MEMORY_MIB": "1024"}


def new_name() -> str:
    return f"t-{uuid.uuid4().hex[:8]}"


lasting, mgpu = lasting_mgpu()


@pytest.fixture
def host_node() -> Iterator[str]:
    """A node with NVIDIA's number, as a real card's, under a name of the test's own in the host's /dev."""
    path = f"/dev/nvidia-test-{uuid.uuid4().hex[:8]}"
    os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(195, 254))
    try:
        yield path
    finally:
        os.unlink(path)


def device(made: Bundle) -> None:
    node = {"path": "/dev/nvidia0", "type": "c", "major": 195, "minor": 0}
    rule = {"allow": True, "type": "c", "major": 195, "minor": 0, "access": "rwm"}

    def add(config: Any) -> None:
        config["linux"].setdefault("devices", []).append(node)
        config["linux"]["resources"]["devices"].append(rule)

    made.edit(add)


def whole_dev(made: Bundle) -> None:
    mount = {"destination": "/hostdev", "type": "bind", "source": "/dev", "options": ["rbind"]}
    made.edit(lambda config: config["mounts"].append(mount))


def open_rules(made: Bundle) -> None:
    rule = {"allow": True, "access": "rwm"}
    made.edit(lambda config: config["linux"]["resources"]["devices"].append(rule))


def nvidia_hook(made: Bundle) -> None:
    hook = {"path": "/usr/bin/nvidia-container-runtime-hook", "args": ["x", "prestart"]}
    made.edit(lambda config: config.update(hooks={"prestart": [hook]}))


def open_rules_of_type_a(made: Bundle) -> None:
    """The kernel and runc look at neither its numbers nor its access."""
    rule = {"allow": True, "type": "a", "major": 7, "minor": 7, "access": "m"}
    made.edit(lambda config: config["linux"]["resources"]["devices"].append(rule))


def open_rules_for_other_users(made: Bundle) -> None:
    """A node that is none of its own can be in any folder that it is given."""
    ids = [{"containerID": 0, "hostID": 200000, "size": 65536}]
    made.edit(lambda config: config["linux"].update(uidMappings=ids, gidMappings=ids))
    made.edit(lambda config: config["linux"]["namespaces"].append({"type": "user"}))
    open_rules(made)


@pytest.mark.parametrize(
    "way", [device, whole_dev, open_rules, open_rules_of_type_a, open_rules_for_other_users, nvidia_hook]
)
def test_refused_without_a_grant(mgpu: Arbiter, way: Callable[[Bundle], None]) -> None:
    with bundle("true") as made:
        way(made)
        done = made.run(mgpu.runtime)
        assert done.status != 0
        assert WITHOUT in done.err, str(done)
        assert mgpu.containers() == []


def host_pids(made: Bundle) -> None:
    made.edit(
        lambda config: config["linux"].update(
            namespaces=[n for n in config["linux"]["namespaces"] if n["type"] != "pid"]
        )
    )


def test_host_pids_alone_are_nothing_to_us(mgpu: Arbiter) -> None:
    with bundle("echo", "plain") as made:
        host_pids(made)
        before = (made.path / "config.json").read_bytes()
        assert made.run(mgpu.runtime).out == "plain\n"
        assert (made.path / "config.json").read_bytes() == before


def may_trace(made: Bundle) -> None:
    """It could seize the runtime's process at each exec, before that has its filter."""
    made.edit(lambda config: config["process"]["capabilities"]["bounding"].append("CAP_SYS_PTRACE"))


def may_mount(made: Bundle) -> None:
    made.edit(lambda config: config["process"]["capabilities"]["bounding"].append("CAP_SYS_ADMIN"))


@pytest.mark.parametrize("way", [whole_dev, open_rules, host_pids, may_trace, may_mount])
def test_open_way_is_refused_beside_a_grant(mgpu: Arbiter, way: Callable[[Bundle], None]) -> None:
    with bundle("true", env=MEMORY) as made:
        way(made)
        done = made.run(mgpu.runtime)
        assert done.status != 0
        assert BESIDE in done.err, str(done)


@pytest.mark.parametrize("way", [device, nvidia_hook])
def test_replaced_way_is_removed_from_the_container(mgpu: Arbiter, way: Callable[[Bundle], None]) -> None:
    with bundle("ls", "-l", "/dev/nvidia0", env=MEMORY) as made:
        way(made)
        assert " 1, 3 " in made.output(mgpu.runtime), "the node is not the granted one"
        written = made.config
        assert "prestart" not in written["hooks"] or written["hooks"]["prestart"] == []
        assert all(node["major"] != 195 for node in written["linux"]["devices"])


def also_linux(config: Any) -> None:
    config["Linux"] = {"seccomp": {"defaultAction": "SCMP_ACT_ALLOW", "syscalls": []}}


def name_with_an_end(config: Any) -> None:
    allowed = {"names": ["ioctl\0", "read"], "action": "SCMP_ACT_ALLOW"}
    config["linux"]["seccomp"] = {"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [allowed]}


def filter_by_annotation(config: Any) -> None:
    config["annotations"]["run.oci.seccomp_bpf_data\0"] = "BgAAAAAA/38="


@pytest.mark.parametrize("change", [also_linux, name_with_an_end, filter_by_annotation])
def test_filter_that_runtimes_read_otherwise_is_refused(
    mgpu: Arbiter, change: Callable[[Any], None]
) -> None:
    with bundle("true", env=MEMORY) as made:
        made.edit(change)
        done = made.run(mgpu.runtime)
        assert done.status != 0
        assert "mgpu: the container's spec has a " in done.err, str(done)


def test_node_in_the_first_of_two_members_is_found(mgpu: Arbiter) -> None:
    """runc and crun make it."""
    with bundle("true") as made:
        rest = made.config
        linux = json.dumps(rest.pop("linux"))
        node = '"devices":[{"path":"/dev/nvidia7","type":"c","major":195,"minor":7}]'
        text = f'{json.dumps(rest)[:-1]},"linux":{linux[:-1]},{node}}},"linux":{linux}}}'
        (made.path / "config.json").write_text(text)
        done = made.run(mgpu.runtime)
        assert done.status != 0
        assert "mgpu: the container's spec names a member twice" in done.err, str(done)


def test_ctr_privileged(ctd: Containerd, mgpu: Arbiter, host_node: str) -> None:
    for env, line in (({}, WITHOUT), (MEMORY, BESIDE)):
        argv = ctd.run_argv(
            new_name(), "true", runtime=mgpu.runtime, env=env, options=["--rm", "--privileged"]
        )
        done = attempt(*argv)
        assert done.status != 0
        assert line in done.err, str(done)


def test_docker_device(docker: Dockerd, host_node: str) -> None:
    done = docker.try_docker(
        *["run", "--rm", "--network=none", f"--runtime={RUNTIME}", "--device", host_node, IMAGE_NAME, "true"]
    )
    assert done.status != 0
    assert f"{WITHOUT} ({host_node}, device rule c 195:254 rwm)" in done.err, str(done)


def test_docker_injects_no_nvidia_node_by_cdi(docker: Dockerd, host_node: str) -> None:
    """Docker does so from 28 on without being told to."""
    if int(docker.docker("version", "--format", "{{.Server.Version}}").partition(".")[0]) < 28:
        pytest.skip("this Docker reads no CDI specs unless it is told to")
    node = {"containerEdits": {"deviceNodes": [{"path": host_node}]}, "name": "0"}
    spec = {"cdiVersion": "0.6.0", "kind": "example.com/gpu", "devices": [node]}
    ask = ["run", "--rm", "--network=none", "--device", "example.com/gpu=0"]
    with host.own(Path("/etc")):
        folder = Path("/etc/cdi")
        folder.mkdir(exist_ok=True)
        (folder / "example.json").write_text(json.dumps(spec))
        assert host_node in docker.docker(*ask, "--runtime=runc", IMAGE_NAME, "ls", host_node)
        done = docker.try_docker(*ask, f"--runtime={RUNTIME}", IMAGE_NAME, "true")
    assert done.status != 0
    assert f"{WITHOUT} ({host_node}" in done.err, str(done)


@pytest.mark.parametrize(("env", "cards"), [({}, 0), (MEMORY, 1)])
def test_allowed_privileged_container_is_filtered_and_advisory(
    ctd: Containerd, built: Programs, env: dict[str, str], cards: int
) -> None:
    with arbiter.running(node_config="allow_privileged = true\n") as mgpu:
        name = new_name()
        options = ["--rm", "--privileged", *built.ctr_mount]
        script = f"echo up; read line; {inside('capped')}"
        argv = ctd.run_argv(name, "sh", "-c", script, runtime=mgpu.runtime, env=env, options=options)
        with foreground(argv) as running:
            assert running.line() == "up"
            [container] = mgpu.containers()
            assert container["advisory"] is True
            assert len(container["cards"]) == cards
            assert "advisory" in mgpu.mgpu("ps")
            seccomp = Path(f"/proc/{container['pid']}/status").read_text().split("Seccomp:\t")[1][0]
            assert seccomp == "2", "it runs without a filter"
            running.tell()
            said = running.line()
            running.end()
            if cards:
                assert [card["total_bytes"] for card in json.loads(said)] == [1024 << 20]
            else:
                assert "libcuda" in said


PROFILES: dict[str, dict[str, Any] | None] = {
    "unconfined": None,
    "custom-allow": {
        "defaultAction": "SCMP_ACT_ALLOW",
        "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86"],
        "syscalls": [
            {
                "names": ["ioctl"],
                "action": "SCMP_ACT_ERRNO",
                "args": [{"index": 1, "value": 0x5412, "op": "SCMP_CMP_EQ"}],
            }
        ],
    },
    "custom-ioctl-logged": {
        "defaultAction": "SCMP_ACT_ALLOW",
        "architectures": ["SCMP_ARCH_X86_64"],
        "syscalls": [{"names": ["ioctl"], "action": "SCMP_ACT_LOG"}],
    },
}


@pytest.mark.parametrize("profile", PROFILES)
def test_enforced_under_any_profile(mgpu: Arbiter, built: Programs, profile: str) -> None:
    with built.bundle("capped", env=MEMORY) as made:
        wanted = PROFILES[profile]

        def set_profile(config: Any) -> None:
            config["linux"].pop("seccomp", None)
            if wanted is not None:
                config["linux"]["seccomp"] = wanted

        made.edit(set_profile)
        [card] = json.loads(made.output(mgpu.runtime))
        assert (card["total_bytes"], card["over"], card["after"]) == (1024 << 20, 2, 0)


@pytest.mark.parametrize("option", [[], ["--security-opt", "seccomp=unconfined"]])
def test_enforced_under_dockers_profiles(docker: Dockerd, built: Programs, option: list[str]) -> None:
    said = docker.docker(
        *["run", "--rm", "--network=none", f"--runtime={RUNTIME}", *option, *built.docker_mount],
        *["--env", "MGPU_MEMORY_MIB=1024", IMAGE_NAME, inside("capped")],
    )
    [card] = json.loads(said)
    assert (card["total_bytes"], card["over"], card["after"]) == (1024 << 20, 2, 0)


def test_enforced_under_containerds_profile(ctd: Containerd, mgpu: Arbiter, built: Programs) -> None:
    argv = ctd.run_argv(
        new_name(),
        inside("capped"),
        runtime=mgpu.runtime,
        env=MEMORY,
        options=["--rm", "--seccomp", *built.ctr_mount],
    )
    [card] = json.loads(run(*argv))
    assert (card["total_bytes"], card["over"], card["after"]) == (1024 << 20, 2, 0)


@pytest.mark.parametrize("runtime", ["runc", "crun"])
@pytest.mark.parametrize("name", ["run.oci.seccomp_bpf_data", "run.oci.seccomp.receiver"])
def test_annotations_that_replace_the_filter_are_refused(
    private_host: None, runtime: str, name: str
) -> None:
    with (
        arbiter.running(runtime=runtime) as mgpu,
        bundle("true", env=MEMORY, annotations={name: "x"}) as made,
    ):
        done = made.run(mgpu.runtime)
        assert done.status != 0
        assert f"mgpu: the annotation {name} replaces" in done.err, str(done)
        assert mgpu.containers() == [], "the grant was not given back"


CRI, CRIO = "io.kubernetes.cri.container-type", "io.kubernetes.cri-o.ContainerType"


@pytest.mark.parametrize(
    "markers", [{CRI: "sandbox"}, {CRIO: "sandbox"}, {CRI: "container", CRIO: "sandbox"}]
)
def test_calling_itself_a_sandbox_does_not_help(mgpu: Arbiter, markers: dict[str, str]) -> None:
    with bundle("true", annotations=markers) as made:
        device(made)
        done = made.run(mgpu.runtime)
        assert done.status != 0
        assert WITHOUT in done.err, str(done)


def test_sandbox_gets_nothing_of_its_pods_request(mgpu: Arbiter) -> None:
    with bundle("echo", "paused", annotations={CRI: "sandbox", "mgpu.dev/memory-mib": "1024"}) as made:
        before = (made.path / "config.json").read_bytes()
        assert made.run(mgpu.runtime).out == "paused\n"
        assert (made.path / "config.json").read_bytes() == before


@pytest.mark.parametrize("env", [MEMORY, {}])
def test_restore_is_no_way_around(mgpu: Arbiter, env: dict[str, str]) -> None:
    with bundle("true", env=env) as made:
        if not env:
            device(made)
        done = attempt(
            *made.argv(mgpu.runtime, "restore", "--bundle", made.path, "--image-path", "/x", "r1")
        )
        assert done.status == 1
        assert "mgpu: a container with a GPU is not restored in the foreground" in done.err, str(done)


@pytest.mark.parametrize("shared", ["pod's", "host's"])
def test_nothing_is_restored_among_others_processes(mgpu: Arbiter, shared: str) -> None:
    """Theirs would be taken for the container's."""
    with bundle("true", env=MEMORY) as made:

        def share(config: dict[str, Any]) -> None:
            spaces = [one for one in config["linux"]["namespaces"] if one["type"] != "pid"]
            pods = [{"type": "pid", "path": "/proc/1/ns/pid"}] if shared == "pod's" else []
            config["linux"]["namespaces"] = spaces + pods

        made.edit(share)
        done = attempt(
            *made.argv(
                mgpu.runtime, "restore", "--detach", "--bundle", made.path, "--image-path", "/x", "r1"
            )
        )
        assert done.status == 1
        assert "mgpu: a container with a GPU is restored into a pid namespace of its own only" in done.err


def test_rewritten_spec_is_not_restored(mgpu: Arbiter) -> None:
    """podman's restore starts from it, and the original is not there."""
    with bundle("true", env=MEMORY, annotations={"dev.mgpu.original-sha256": "0" * 64}) as made:
        done = attempt(
            *made.argv(
                mgpu.runtime, "restore", "--detach", "--bundle", made.path, "--image-path", "/x", "r1"
            )
        )
        assert done.status == 1
        assert "mgpu: the spec of the checkpoint is the one that mgpu had rewritten" in done.err, str(done)
