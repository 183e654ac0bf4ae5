"""The image that a cluster's nodes run, on a node that has nothing else: no shell, no libc, no Python."""

import json
import os
import re
import signal
import subprocess
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

import pytest

from sim import cdi
from tests.cluster.manifest_files import AGENT as MANIFEST
from tests.cluster.manifest_files import pod_of
from tests.support import host
from tests.support.arbiter import Arbiter
from tests.support.commands import run
from tests.support.places import PREFIX
from tests.support.waiting import until
from tools import node_image

PLACE = "/opt/mgpu"
AGENT = f"{PLACE}/bin/mgpu-agent"
MGPU = f"{PLACE}/bin/mgpu"
STATE = "/run/mgpu"
CHROOT = "/usr/sbin/chroot"


class Node:
    """An image's root folder, and the node's below its /host."""

    def __init__(self, image: Path) -> None:
        self.image = image
        self.root = image / "host"

    def agent(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.inside(self.image, AGENT, *words)

    def mgpu(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.inside(self.root, MGPU, *words)

    def mgpud_pid(self) -> int:
        """0 while none serves."""
        found = re.search(r"pid (\d+), up", self.mgpu("health").stdout)
        return int(found[1]) if found else 0

    def inside(self, root: Path, *argv: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [CHROOT, root, *argv], env={}, capture_output=True, text=True, check=False, timeout=60
        )

    def start(self, *argv: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen([CHROOT, self.image, *argv], env={}, stdout=subprocess.DEVNULL)


@pytest.fixture(scope="module")
def node(private_host: None) -> Iterator[Node]:
    with host.home("node-image") as folder:
        archive = folder / "mgpu.tar"
        assert node_image.make(PREFIX, archive) < node_image.MAX_BYTES
        image = folder / "image"
        _unpack(archive, image, folder / "scheduler")
        made = Node(image)
        for mount in ("proc", "sys", "dev"):
            for root in (made.image, made.root):
                (root / mount).mkdir()
                run("mount", "--rbind", f"/{mount}", root / mount)
        try:
            yield made
        finally:
            for mount in ("proc", "sys", "dev"):
                for root in (made.root, made.image):
                    run("umount", "--lazy", "--recursive", root / mount)


def _unpack(archive: Path, node: Path, scheduler: Path) -> None:
    with tarfile.open(archive) as image:
        of_nodes, of_scheduler = json.load(_member(image, "manifest.json"))
        assert of_nodes["RepoTags"] == [node_image.name()]
        assert of_scheduler["RepoTags"] == [node_image.name("mgpu-scheduler")]
        assert of_scheduler["Layers"][:1] == of_nodes["Layers"]
        for folder, names in ((node, of_nodes["Layers"]), (scheduler, of_scheduler["Layers"])):
            folder.mkdir()
            for name in names:
                with tarfile.open(fileobj=_member(image, name)) as layer:
                    layer.extractall(folder)


def _member(image: tarfile.TarFile, name: str) -> IO[bytes]:
    found = image.extractfile(name)
    assert found is not None
    return found


@pytest.fixture
def agent(node: Node) -> Iterator[subprocess.Popen[bytes]]:
    """As the manifests run it, with simulated cards."""
    done = node.agent("install", "--keep")
    assert done.returncode == 0, done.stderr
    sockets = node.root / "run" / "mgpu" / "sim"
    run("rm", "-rf", sockets)
    sockets.mkdir()
    sim = node.start(
        AGENT, "run", "--", f"{PLACE}/libexec/mgpu/mgpu-simcard", "--dir", f"{STATE}/sim", "--cards", "t4:1"
    )  # fmt: skip
    until(lambda: (sockets / "admin.sock").exists(), "the simulated GPUs are there")
    holder = node.start(*_manifest_command())
    try:
        until(lambda: holder.poll() is not None or node.mgpud_pid() != 0, "mgpud serves")
        assert holder.poll() is None, "the holder ended"
        yield holder
    finally:
        for program in (holder, sim):
            with suppress(ProcessLookupError):
                program.terminate()
            program.wait(20)


def _manifest_command() -> Sequence[str]:
    [container] = pod_of(MANIFEST)["containers"]
    command: list[str] = container["command"]
    return [*command[: command.index("nvidia")], "sim"]


def test_mgpu_runs_on_a_node_with_nothing_else(node: Node) -> None:
    done = node.agent("install")
    assert done.returncode == 0, done.stderr
    assert sorted(os.listdir(node.root / "opt")) == [
        ".mgpu.lock",
        "mgpu",
        os.readlink(node.root / "opt/mgpu"),
    ]
    assert node.mgpu("--version").stdout.startswith("mgpu ")
    assert node.agent("install").stdout == "/opt/mgpu of the node stays as it is\n"


def test_only_the_schedulers_image_has_what_it_needs_alone(node: Node) -> None:
    done = node.inside(node.image.with_name("scheduler"), f"{PLACE}/bin/mgpu-scheduler", "--help")
    assert done.returncode == 0, done.stderr
    assert "--score" in done.stdout
    assert not list(node.image.glob("opt/mgpu/lib/python3*/site-packages/numpy*"))
    for program in ("mgpu-node", "mgpu-admission", "mgpu-agent", "mgpu", "mgpud"):
        done = node.inside(node.image, f"{PLACE}/bin/{program}", "--help")
        assert done.returncode == 0, done.stderr


def test_programs_find_those_of_the_node(node: Node) -> None:
    node.agent("install", "--keep")
    done = node.agent("run", "--", f"{PLACE}/bin/python3", "-c", "import os; print(os.environ['PATH'])")
    assert "/usr/sbin" in done.stdout.split(":"), done.stderr


def test_image_has_what_mgpud_watches_with(node: Node) -> None:
    """The part of Python that pyroute2 needs is not all that mgpud does."""
    node.agent("install", "--keep")
    done = node.agent("run", "--", f"{PLACE}/bin/python3", "-c", "import containerd_api.watch")
    assert done.returncode == 0, done.stderr


def test_killed_mgpud_is_followed_by_the_next_at_once(node: Node, agent: subprocess.Popen[bytes]) -> None:
    before = node.mgpud_pid()
    os.kill(before, signal.SIGKILL)
    until(
        lambda: node.mgpud_pid() not in (0, before),
        "the next mgpud serves",
    )
    assert agent.poll() is None


def test_new_version_takes_over_in_the_same_pod(node: Node, agent: subprocess.Popen[bytes]) -> None:
    before, folder = node.mgpud_pid(), os.readlink(node.root / "opt/mgpu")
    (node.image / "opt/mgpu/lib/another").write_text("a file that the version before had not\n")
    done = node.agent("install", "--upgrade")
    assert done.returncode == 0, done.stderr
    assert " in place of " in done.stdout
    assert os.readlink(node.root / "opt/mgpu") != folder
    assert node.mgpud_pid() != before
    assert agent.poll() is None
    assert node.agent("install", "--keep").stdout == "/opt/mgpu of the node stays as it is\n"


def test_settings_of_the_cluster_are_the_nodes(node: Node, agent: subprocess.Popen[bytes]) -> None:
    config, before = node.image / "etc/mgpu/node.toml", node.mgpud_pid()
    words = ("install", "--keep", "--upgrade", "--node-config", "/etc/mgpu/node.toml")
    assert node.agent(*words).stdout == "/opt/mgpu of the node stays as it is\n"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text("max_containers_per_card = 3\n")
    done = node.agent(*words)
    assert done.returncode == 0, done.stderr
    assert "/run/mgpu/node.toml of the node is new" in done.stdout
    assert node.mgpud_pid() not in (0, before)
    asks = (
        "print(asyncio.run(Mgpud(Path('/run/mgpu/mgpud.sock')).inventory()).rules.max_containers_per_card)"
    )
    imports = "import asyncio; from pathlib import Path; from cluster.node.mgpud import Mgpud"
    assert node.inside(node.root, f"{PLACE}/bin/python3", "-c", f"{imports}; {asks}").stdout == "3\n"


def test_another_installation_is_left_alone(node: Node, tmp_path: Path) -> None:
    (tmp_path / "opt" / "mgpu").mkdir(parents=True)
    other = node.image / "other"
    other.mkdir()
    run("mount", "--bind", tmp_path, other)
    try:
        done = node.agent("install", "--host", "/other")
    finally:
        run("umount", other)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "a folder that this did not make" in done.stderr


def test_uninstalling_waits_for_containers_and_the_agent_and_leaves_nothing(
    node: Node, agent: subprocess.Popen[bytes]
) -> None:
    mgpud = Arbiter(node.root / "run/mgpu", agent.pid)
    (mgpud.root / "cdi").mkdir(exist_ok=True)
    cdi.write(mgpud.root / "cdi", mgpud.root / "sim/admin.sock")
    reply = mgpud.ask(
        "admit",
        container_id="holds-one",
        bundle="/b",
        rootfs="/r",
        annotations={"mgpu.dev/memory-mib": "1024"},
        env={},
        reach=[],
        seccomp_listener=None,
    )
    with subprocess.Popen(
        [CHROOT, node.image, AGENT, "uninstall"], env={}, stdout=subprocess.PIPE, text=True
    ) as uninstall:
        assert uninstall.stdout is not None
        assert uninstall.stdout.readline() == "waiting: 1 container holds a GPU: holds-one\n"
        assert len(mgpud.containers()) == 1
        mgpud.ask("release", nonce=reply["grant"]["nonce"], state={"id": "holds-one"})
        assert uninstall.stdout.readline() == "waiting: mgpu's agent still runs on this node\n"
        assert node.mgpud_pid() != 0
        agent.terminate()
        said = uninstall.stdout.read()
        assert uninstall.wait(60) == 0
    assert said.endswith("/opt/mgpu of the node is gone\n")
    assert os.listdir(node.root / "opt") == []
    assert not (node.root / "run/mgpu").exists()
    assert node.agent("uninstall").stdout == "/opt/mgpu is not on the node\n"


def test_drain_ends_where_no_container_holds_a_gpu(node: Node, agent: subprocess.Popen[bytes]) -> None:
    done = node.agent("run", "--", MGPU, "drain")
    assert (done.returncode, done.stdout) == (0, "")
