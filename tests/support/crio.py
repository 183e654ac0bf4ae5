"""A CRI-O of the tests' own, where there is one on PATH: pods as a kubelet runs them."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from install import crio, parts
from install.engine import Intent
from tests.cri.client import Client
from tests.support import cri
from tests.support.commands import attempt, run
from tests.support.containerd import answers
from tests.support.cri import LINK, PAUSE_IMAGE, PLAIN, Kubelet
from tests.support.engine_home import engine_home
from tests.support.places import IMAGE_ARCHIVE
from tests.support.processes import Service, daemon

# As mgpu install writes it.
HANDLER = parts.HANDLER

# The engine's own seccomp profile, since none is named.
_CONFIG = """\
[crio]
root = "{home}/root"
runroot = "{home}/runroot"
storage_driver = "overlay"
log_dir = "{home}/logs"
version_file = "{home}/version"
clean_shutdown_file = "{home}/clean"
[crio.api]
listen = "{home}/c.sock"
[crio.runtime]
cgroup_manager = "cgroupfs"
conmon_cgroup = ""
apparmor_profile = "unconfined"
default_runtime = "{plain}"
hooks_dir = ["{home}/hooks.d"]
namespaces_dir = "{home}/ns"
container_exits_dir = "{home}/exits"
container_attach_socket_dir = "{home}/attach"
[crio.runtime.runtimes.{plain}]
runtime_path = "{runc}"
runtime_root = "{home}/runc"
[crio.image]
pause_image = "{pause}"
signature_policy = "{home}/policy.json"
signature_policy_dir = "{home}/policies"
namespaced_auth_dir = "{home}/auth"
[crio.network]
network_dir = "{home}/cni"
plugin_dirs = ["{home}/cni"]
[crio.nri]
enable_nri = false
"""


def is_here() -> bool:
    return shutil.which("crio") is not None


def takes(runtime: str) -> bool:
    """Whether the runtime takes the spec's version that CRI-O writes: crun 1.8 knows none above 1.0."""
    return attempt(runtime, "features").status == 0


@contextmanager
def running(name: str = "crio") -> Iterator[Kubelet]:
    """A CRI-O with the test image and the handlers PLAIN and HANDLER."""
    with engine_home(name) as home:
        runc = shutil.which("runc") or "runc"
        config = home / "crio.conf"
        config.write_text(_CONFIG.format(home=home, plain=PLAIN, runc=runc, pause=PAUSE_IMAGE))
        (home / "policy.json").write_text('{"default": [{"type": "insecureAcceptAnything"}]}')
        cri.without_network(home / "cni")
        _with_handler(config)
        for archive in (IMAGE_ARCHIVE, cri.pause_archive(home)):
            _load(home, archive)
        service = Service(
            lambda: daemon(
                ["crio", "--config", config, "--config-dir", home / "crio.conf.d"],
                log=home / "crio.log",
                ready=lambda: answers(home / "c.sock"),
                env={"TMPDIR": os.fspath(home)},
            )
        )
        with service, Client(home / "c.sock") as client:
            kubelet = Kubelet(home, service, client)
            kubelet.wait_ready()
            try:
                yield kubelet
            finally:
                kubelet.clear()


def _with_handler(config: Path) -> None:
    """The drop-in of mgpu install crio, for a mgpu-runtime that is told later."""
    link = config.with_name(LINK)
    # Until a test says which; CRI-O leaves out a handler whose runtime is not there.
    link.symlink_to(shutil.which("runc") or "runc")
    ours = replace(parts.found(root=os.fspath(config.parent), runtime_conf=""), runtime=os.fspath(link))
    drop_in = config.with_name("crio.conf.d") / "99-mgpu.conf"
    [target] = crio.targets(ours, Intent(config=drop_in))
    drop_in.parent.mkdir()
    drop_in.write_text(target.add(None).text or "")


def _load(home: Path, archive: Path) -> None:
    """An image into CRI-O's store, which podman shares the form of."""
    store: list[str | Path] = [
        "--root",
        home / "root",
        "--runroot",
        home / "runroot",
        "--storage-driver",
        "overlay",
    ]
    run("podman", *store, "--tmpdir", home / "tmp", "load", "--input", archive, timeout_s=120)
