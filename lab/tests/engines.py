"""Containers by containerd and by Docker of the guest's release, on the card that NVIDIA's driver has."""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from lab.claims import decides
from lab.guest import served
from lab.tests.under_mgpu import LIMIT_S, PATIENCE_S

HOME, ROOTFS, IMAGE = Path("/run/engines"), Path("/project/rootfs"), "lab-shell"
CONFIG = """\
version = 2
root = "{home}/root"
state = "{home}/state"
disabled_plugins = ["io.containerd.grpc.v1.cri"]
[grpc]
  address = "{home}/c.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "{home}/opt"
"""
ASKED = {"MGPU_MEMORY_MIB": "512", "MGPU_GPUS": "1", "NVIDIA_VISIBLE_DEVICES": "0"}
# An image of a shell alone: a larger one takes minutes to import. By place there and in the root: the
# loader's usual name is a link that would be followed to the guest's own, which may be another release's.
DASH = "/usr/bin/dash"
LIBRARIES, LOADER = "usr/lib/x86_64-linux-gnu", "ld-linux-x86-64.so.2"
SHELL = {
    DASH[1:]: DASH[1:],
    "lib/x86_64-linux-gnu/libc.so.6": f"{LIBRARIES}/libc.so.6",
    f"lib64/{LOADER}": f"{LIBRARIES}/{LOADER}",
}
OPENS = "exec 3<>/dev/nvidia0 && echo opened; i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done"


def run(*words: str | Path) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (words, done.stdout[-300:], done.stderr[-600:])
    return done.stdout


@contextmanager
def daemon(words: Sequence[str | Path], ready: Sequence[str | Path]) -> Iterator[None]:
    log = HOME / f"{Path(words[0]).name}.log"
    with log.open("wb") as said:
        process = subprocess.Popen(words, stdout=said, stderr=said)
    try:
        end = time.monotonic() + PATIENCE_S
        while subprocess.run(ready, capture_output=True, check=False).returncode:
            assert time.monotonic() < end, log.read_text()[-600:]
            time.sleep(0.5)
        yield
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


@contextmanager
def containerd() -> Iterator[tuple[str | Path, ...]]:
    """How its client is called."""
    HOME.mkdir(exist_ok=True)
    (HOME / "config.toml").write_text(CONFIG.format(home=HOME))
    client = ("ctr", "--address", HOME / "c.sock", "--namespace", "lab")
    with daemon(["containerd", "--config", HOME / "config.toml"], [*client, "version"]):
        yield client


def variables() -> list[str]:
    return [word for name, value in ASKED.items() for word in ("--env", f"{name}={value}")]


def granted_mib() -> list[int]:
    return [int(card["memory_mib"]) for each in served.ask("list")["containers"] for card in each["cards"]]


def has_its_cap_while_it_runs(words: Sequence[str | Path]) -> None:
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        granted = granted_mib()
        said += process.stdout.read()
    assert said.startswith("opened"), said
    assert granted == [512]
    assert process.returncode == 0, said


@decides(long=True, limit_s=LIMIT_S)
def containerd_opens_the_card() -> None:
    served.start()
    with containerd() as client:
        words = [*client, "run", "--rm", "--cpu-shares", "0", "--runc-binary", served.state().runtime]
        words += [*variables(), "--rootfs", ROOTFS, "by-ctr", DASH, "-c", OPENS]
        has_its_cap_while_it_runs(words)


@decides(long=True, limit_s=LIMIT_S)
def docker_opens_the_card() -> None:
    served.start()
    image = HOME / "image"
    shutil.rmtree(image, ignore_errors=True)
    for name, source in SHELL.items():
        (image / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOTFS / source, image / name)
    with containerd():
        docker = ("docker", "--host", f"unix://{HOME}/d.sock")
        config = {
            "hosts": [f"unix://{HOME}/d.sock"],
            "containerd": os.fspath(HOME / "c.sock"),
            "data-root": os.fspath(HOME / "data"),
            "exec-root": os.fspath(HOME / "exec"),
            "pidfile": os.fspath(HOME / "pid"),
            "exec-opts": ["native.cgroupdriver=cgroupfs"],
            "storage-driver": "vfs",
            "bridge": "none",
            "iptables": False,
            "ip6tables": False,
            "runtimes": {"mgpu": {"path": os.fspath(served.state().runtime)}},
        }
        (HOME / "daemon.json").write_text(json.dumps(config))
        with daemon(["dockerd", "--config-file", HOME / "daemon.json"], [*docker, "version"]):
            run("tar", "-C", image, "-cf", HOME / "image.tar", ".")
            run(*docker, "import", HOME / "image.tar", IMAGE)
            words = [*docker, "run", "--rm", "--network", "none", "--runtime", "mgpu", *variables()]
            has_its_cap_while_it_runs([*words, IMAGE, DASH, "-c", OPENS])
