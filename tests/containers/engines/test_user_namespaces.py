"""Containers in a user namespace of their own get their GPU; engines that are themselves in one do not."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oci_specs import paths
from sim.cdi import LIBRARIES, LINKS
from tests.support import arbiter, containerd, cri, dockerd, host, podman
from tests.support.arbiter import Arbiter, until_empty
from tests.support.bundle import Bundle, bundle
from tests.support.commands import attempt, run
from tests.support.cri import Kubelet
from tests.support.dockerd import RUNTIME, Dockerd
from tests.support.places import IMAGE_NAME
from tests.support.podman import Podman
from tests.support.programs import Programs, inside

MEMORY = {"MGPU_MEMORY_MIB": "512"}
# Where the container's ids begin on the host, and how many it has.
FIRST, COUNT = 200000, 65536
USER = 1000
# A user of every system.
REMAPPED = "daemon"
RUNTIMES = ("runc", "crun")


@pytest.fixture(scope="module", params=RUNTIMES)
def up(request: pytest.FixtureRequest, private_host: None) -> Iterator[Arbiter]:
    with arbiter.running("v100-16:2", runtime=request.param) as running:
        yield running


@pytest.fixture(scope="module")
def programs(built: Programs) -> dict[str, Any]:
    """A mount of the test programs. Its source is nosuid, which runc 1.1 has to be told."""
    built.folder.chmod(0o711)
    return {**built.oci_mount, "options": ["bind", "ro", "nosuid"]}


def mapped(config: Any) -> None:
    ids = [{"containerID": 0, "hostID": FIRST, "size": COUNT}]
    config["linux"]["namespaces"].append({"type": "user"})
    config["linux"] |= {"uidMappings": ids, "gidMappings": ids}


@contextmanager
def mapped_bundle(*command: str, env: dict[str, str] = MEMORY, **more: Any) -> Iterator[Bundle]:
    """Its root folder is the container's root's, as engines make it."""
    with bundle(*command, env=env, **more) as made:
        made.edit(mapped)
        root = Path(made.config["root"]["path"])
        for folder in (made.path, root.parent):
            folder.chmod(0o711)
        run("find", root, "-type", "d", "-exec", "chown", f"{FIRST}:{FIRST}", "{}", "+")
        yield made


def test_bundle_with_mappings_has_its_share(up: Arbiter) -> None:
    command = "cat /proc/self/uid_map; gpustat --no-header; ls -l /dev/nvidia*"
    with mapped_bundle("sh", "-c", command) as made:
        done = made.run(up.runtime)
    assert done.status == 0, done.err
    assert done.out.split()[:3] == ["0", str(FIRST), str(COUNT)]
    assert "/   512 MB" in done.out
    # Its own card's, the control file and nvidia-uvm.
    assert done.out.count("/dev/nvidia") == 3
    until_empty(up)


def test_root_that_it_cannot_write_to_is_refused_before_the_runtime(up: Arbiter) -> None:
    """Where the driver's libraries are mounted: the runtime would say that it may not make a file there."""
    folder = "usr/lib/x86_64-linux-gnu"
    with mapped_bundle("gpustat", "--no-header") as made:
        root = Path(made.config["root"]["path"])
        for library in (*LIBRARIES, *LINKS):
            (root / folder / library).unlink(missing_ok=True)
        run("chown", "0:0", root / folder)
        done = made.run(up.runtime)
        assert done.status != 0
        assert [line for line in done.err.splitlines() if line.startswith("mgpu: ")], done.err
        assert f"the container's root user, {FIRST} on the host, may not make it there" in done.err
        until_empty(up)
        for library in (*LIBRARIES, *LINKS):
            (root / folder / library).touch()
        done = made.run(up.runtime)
        assert "/   512 MB" in done.out, str(done)
    until_empty(up)


@pytest.mark.parametrize("owner_is", [0, 1000])
def test_owner_of_the_hosts_nodes_is_not_in_it(up: Arbiter, owner_is: int) -> None:
    """It could close them to all others."""
    with bundle("chmod", "0", "/dev/nvidia0", env=MEMORY) as made:

        def map_owner(config: Any) -> None:
            mapped(config)
            [others] = config["linux"]["uidMappings"]
            ids = [
                {**others, "size": owner_is},
                {"containerID": owner_is, "hostID": 0, "size": 1},
                {"containerID": owner_is + 1, "hostID": FIRST + owner_is + 1, "size": COUNT},
            ]
            config["linux"] |= {"uidMappings": ids[owner_is == 0 :], "gidMappings": ids[owner_is == 0 :]}

        made.edit(map_owner)
        done = made.run(up.runtime)
    assert done.status != 0
    assert "hook" in done.err, done.err
    assert (up.root / "sim" / "dev" / "nvidia0").stat().st_mode & 0o777 == 0o666
    until_empty(up)


def test_spec_without_device_rules_gets_such(up: Arbiter) -> None:
    """podman 5 writes none. A node of NVIDIA's that another container made can be in any volume."""
    folder = up.root / "volume"
    folder.mkdir(exist_ok=True)
    os.mknod(folder / "node", 0o020666, os.makedev(195, 9))
    volume = {"destination": "/volume", "type": "bind", "source": str(folder), "options": ["bind"]}
    try:
        with mapped_bundle("sh", "-c", "gpustat --no-header; cat /volume/node", mounts=[volume]) as made:
            made.edit(lambda config: config["linux"]["resources"].pop("devices"))
            done = made.run(up.runtime)
    finally:
        (folder / "node").unlink()
    assert "/   512 MB" in done.out, str(done)
    assert "Operation not permitted" in done.err, str(done)
    until_empty(up)


@pytest.mark.parametrize("user", [0, 65534])
def test_its_calls_are_served_by_each_mgpud(up: Arbiter, programs: dict[str, Any], user: int) -> None:
    with mapped_bundle(inside("hold"), "100", mounts=[programs]) as made:
        made.edit(lambda config: config["process"]["user"].update(uid=user, gid=user))
        with made.running(up.runtime) as running:
            assert running.line() == "held 0"
            assert up.used_bytes()[0] >= 100 << 20
            # Another listener of the same container, and the same account.
            view = ("gpustat", "--no-header")
            assert "/   512 MB" in made.call(up.runtime, "exec", made.container, *view)
            up.kill("mgpud")
            assert "/   512 MB" in made.call(up.runtime, "exec", made.container, *view)
            assert up.used_bytes()[0] >= 100 << 20
            run(*made.argv(up.runtime, "kill", made.container, "KILL"))
            running.process.wait(60)
        until_empty(up)


def test_cap_holds(up: Arbiter, programs: dict[str, Any]) -> None:
    with mapped_bundle(inside("hold"), "600", "1", "0", mounts=[programs]) as made:
        done = made.run(up.runtime)
    assert "held 2" in done.out, (done.out, done.err)
    until_empty(up)


@pytest.fixture(scope="module")
def subordinate(private_host: None) -> Iterator[None]:
    """Ids for podman's `--userns=auto` and for Docker's `userns-remap`."""
    ids = f"containers:{FIRST}:{16 * COUNT}\n{REMAPPED}:{FIRST}:{COUNT}\n"
    with host.own(Path("/etc")):
        for name in ("subuid", "subgid"):
            (Path("/etc") / name).write_text(ids)
        for name in ("passwd", "group"):
            with (Path("/etc") / name).open("a") as file:
                file.write(
                    "containers:x:990:990::/:/bin/false\n" if name == "passwd" else "containers:x:990:\n"
                )
        yield


@pytest.fixture(scope="module")
def with_ids(subordinate: None) -> Iterator[Podman]:
    with podman.running() as running:
        running.home.chmod(0o711)
        yield running


@pytest.mark.parametrize("options", [("--userns=auto",), ("--userns=auto", f"--user={USER}")])
def test_podmans_automatic_namespace_has_its_share(
    up: Arbiter, with_ids: Podman, options: tuple[str, ...]
) -> None:
    image = with_ids.podman("images", "--quiet").split()[0]
    said = with_ids.podman(
        "--runtime",
        up.runtime,
        *("run", "--rm", *with_ids.run_options, *options, "--env", "MGPU_MEMORY_MIB=512"),
        *(image, "sh", "-c", "cat /proc/self/uid_map; gpustat --no-header"),
    )
    assert int(said.split()[1]) >= FIRST
    assert "/   512 MB" in said
    until_empty(up)


@pytest.fixture(scope="module")
def remapped(subordinate: None) -> Iterator[Dockerd]:
    with dockerd.running("remap", remapped_to=REMAPPED) as running:
        yield running


def test_dockers_remapped_containers_have_their_share(up: Arbiter, remapped: Dockerd) -> None:
    remapped.point_at(up.runtime)
    run = ["run", "--detach", "--network=none", f"--runtime={RUNTIME}", "--env", "MGPU_MEMORY_MIB=512"]
    made = remapped.docker(*run, IMAGE_NAME, "sleep", "600").strip()
    assert remapped.docker("exec", made, "cat", "/proc/self/uid_map").split()[1] == str(FIRST)
    assert "/   512 MB" in remapped.docker("exec", made, "gpustat", "--no-header")
    remapped.docker("rm", "--force", made)
    until_empty(up)


@pytest.mark.parametrize("handler", [cri.BY_SHIM, cri.BY_BINARY])
def test_pod_without_the_hosts_users_has_its_share(up: Arbiter, kubelet: Kubelet, handler: str) -> None:
    if containerd.version() < (1, 7):
        pytest.skip("this containerd does not know hostUsers, and kubelet is told so")
    kubelet.home.chmod(0o711)
    kubelet.point_at(up.runtime)
    pod = kubelet.run(
        replace(cri.pod_of("sleep", "99", annotations={"mgpu.dev/memory-mib": "512"}), host_users=False),
        handler,
    )
    mapped = kubelet.execute(pod.container, "cat", "/proc/self/uid_map").out.split()
    assert mapped == ["0", str(cri.FIRST_ID), str(cri.IDS)]
    assert "/   512 MB" in kubelet.execute(pod.container, "gpustat", "--no-header").out
    kubelet.remove(pod)
    until_empty(up)


@contextmanager
def world_readable(up: Arbiter) -> Iterator[Path]:
    """runtime.conf where users find it, as mgpu install puts it."""
    with host.home("conf") as folder:
        folder.chmod(0o755)
        shutil.copy(up.root / "runtime.conf", folder)
        (folder / "runtime.conf").chmod(0o644)
        yield folder / "runtime.conf"


REFUSED = {
    "of-a-user": ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "unshare", "-Ur"],
    "of-root": ["unshare", "-Ur"],
}


@pytest.mark.parametrize("engine", REFUSED.values(), ids=REFUSED.keys())
def test_rootless_engine_is_refused_in_one_line(up: Arbiter, engine: list[str]) -> None:
    with bundle("true", env=MEMORY) as made, world_readable(up) as conf:
        made.path.chmod(0o755)
        run("chown", "-R", str(USER), made.path)
        launcher = [paths.libexec("mgpu-runtime"), f"--mgpu-config={conf}", "mgpu-runtime"]
        words: list[str | Path] = ["--root", made.state, "create", "--bundle", made.path, made.container]
        done = attempt(*engine, *launcher, *words)
    assert done.status != 0
    [line] = done.err.splitlines()
    assert line.startswith("mgpu: only "), line
    assert up.containers() == []
