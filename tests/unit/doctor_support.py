"""A node without a fault, for the checks of mgpu doctor to be shown with one fault each."""

import json
import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from install import precreate_hook
from mgpu_cli.doctor.containerd_facts import Facts
from mgpu_cli.doctor.finding import Finding, Group, Level
from mgpu_cli.doctor.host import Host, NoAnswerError
from mgpu_cli.doctor.rm_table import Row
from mgpu_cli.state import StateDir
from oci_specs import vocabulary
from runtime_hook.holder import HolderStatus

ROOT = Path("/run/mgpu")
RUNTIME = f"{ROOT}/bin/mgpu-runtime"
ANNOTATIONS = ["mgpu.dev/*", *(key.name for key in vocabulary.KEYS if key.source == vocabulary.ANNOTATION)]
FEATURES = json.dumps({"linux": {"seccomp": {"enabled": True, "actions": ["SCMP_ACT_NOTIFY"]}}})
CRI = frozenset({"io.containerd.grpc.v1.cri"})

LIMITS = """\
Limit                     Soft Limit           Hard Limit           Units
Max open files            1048576              1048576              files
Max realtime priority     0                    0
"""


def containerd_config(**handler: Any) -> str:
    entry = {"runtime_type": "io.containerd.mgpu.v2", **handler}
    lines = [f"{key} = {json.dumps(value)}" for key, value in entry.items() if not isinstance(value, dict)]
    for key, value in entry.items():
        if isinstance(value, dict):
            lines.append(f'[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.mgpu.{key}]')
            lines += [f"{name} = {json.dumps(each)}" for name, each in value.items()]
    table = '[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.mgpu]'
    return "\n".join(["version = 2", table, *lines])


class Node:
    """Files below `root`; what programs print, by their first words; what mgpud, dockerd and containerd
    say."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.printed: dict[str, str | Exception] = {}
        self.health: dict[str, Any] | None = {
            "driver": "sim",
            "driver_version": "550.1",
            "rm_table": "580.65",
            "driver_alive": True,
            "pid": 100,
            "containers": 0,
            "cards": 2,
            "sched_fifo": True,
            "without": [],
            "poll_fast_us": 300,
            "hold_ms": 100,
            "quiet_ms": 5,
        }
        self.containers: list[dict[str, Any]] = []
        self.docker: Any = {"ServerVersion": "20.10", "Runtimes": {"mgpu": {"path": RUNTIME}}}
        self.facts = Facts("1.6.20", CRI)
        self.syscalls: dict[str, int] = {}
        self.rm_rows = {"550.54.15": "550.54"}
        self.uid = 0
        self._well()

    def _well(self) -> None:
        self.write("/proc/sys/kernel/osrelease", "6.8.0-45-generic\n")
        self.write("/proc/sys/kernel/seccomp/actions_avail", "kill_process user_notif allow\n")
        self.write("/proc/sys/kernel/yama/ptrace_scope", "1\n")
        self.write("/proc/sys/fs/epoll/max_user_watches", "5000000\n")
        self.write("/proc/self/mounts", "/dev/sda / ext4 rw 0 0\ntmpfs /run tmpfs rw,nosuid 0 0\n")
        self.write("/proc/100/status", "Name:\tmgpud\nCapEff:\t000001ffffffffff\n")
        self.write("/proc/100/limits", LIMITS)
        self.write("/proc/100/cmdline", f"/opt/bin/python\0/opt/bin/mgpud\0--root\0{ROOT}\0")
        self.write("/proc/99/cmdline", f"/opt/mgpu-holder\0--mgpud-socket\0{ROOT}/holder.sock\0")
        self.program("/usr/bin/runc", "runc version 1.1.5\nspec: 1.0.2", "--version")
        self.printed["/usr/bin/runc features"] = FEATURES
        self.program(RUNTIME)
        self.program("/usr/bin/containerd-shim-mgpu-v2")
        conf = {
            "runtime": "/usr/bin/runc",
            "hook": "/opt/hook",
            "python": "/opt/python",
            "main": "/opt/main.py",
        }
        for name in ("/opt/hook", "/opt/python", "/opt/main.py"):
            self.write(name, "")
        self.write(f"{ROOT}/runtime.conf", "".join(f'{key} = "{value}"\n' for key, value in conf.items()))
        self.cdi(f"{ROOT}/cdi/sim.json", "sim.mgpu.dev/gpu")

    def with_containerd(self, **handler: Any) -> None:
        lists = {"pod_annotations": ANNOTATIONS, "container_annotations": ANNOTATIONS}
        config = containerd_config(**{**lists, **handler})
        self.write("/etc/containerd/config.toml", config)
        self.socket("/run/containerd/containerd.sock")
        self.program("/usr/bin/containerd", config, "config dump")

    def with_podman(self, *, runtimes: str = "") -> None:
        info = {"version": {"Version": "4.3.1"}, "host": {"ociRuntime": {"path": "/usr/bin/crun"}}}
        self.program("/usr/bin/podman", json.dumps(info), "info --format json")
        if runtimes:
            self.write("/etc/containers/containers.conf.d/99-mgpu.conf", f"[engine.runtimes]\n{runtimes}\n")

    def with_podman_hook(self, program: str) -> None:
        self.with_podman()
        self.write(
            "/etc/containers/containers.conf.d/99-mgpu.conf", '[engine]\nhooks_dir = ["/etc/mgpu/hooks.d"]\n'
        )
        self.write("/etc/mgpu/hooks.d/zz-mgpu.json", precreate_hook.text(program))

    def path(self, name: str) -> Path:
        return self.root / name.lstrip("/")

    def write(self, name: str, text: str) -> None:
        self.path(name).parent.mkdir(parents=True, exist_ok=True)
        self.path(name).write_text(text)

    def cdi(self, name: str, kind: str) -> None:
        devices = [{"name": str(index), "containerEdits": {"env": ["A=b"]}} for index in range(2)]
        self.write(name, json.dumps({"cdiVersion": "0.5.0", "kind": kind, "devices": devices}))

    def program(self, name: str, output: str = "", *words: str) -> None:
        self.write(name, "")
        self.path(name).chmod(0o755)
        self.printed[" ".join([name, *words])] = output

    def socket(self, name: str) -> None:
        self.path(name).parent.mkdir(parents=True, exist_ok=True)
        os.mknod(self.path(name), stat.S_IFSOCK | 0o600)

    def host(self) -> Host:
        def run(argv: Sequence[str]) -> str:
            printed = self.printed.get(" ".join(argv), NoAnswerError(f"{argv[0]} has no {argv[-1]}"))
            if isinstance(printed, Exception):
                raise printed
            return printed

        def ask(_path: str, verb: str) -> dict[str, Any]:
            if self.health is None:
                raise NoAnswerError("mgpud is not running")
            return self.health if verb == "health" else {"containers": self.containers}

        def get(_path: str, _url: str) -> Any:
            if isinstance(self.docker, Exception):
                raise self.docker
            return self.docker

        return Host(
            state=StateDir(ROOT),
            root=self.root,
            search_path="/usr/local/bin:/usr/bin",
            uid=self.uid,
            run=run,
            get=get,
            ask=ask,
            containerd=lambda _address: self.facts,
            syscall=lambda name: self.syscalls.get(name, 0),
            listens=lambda _path: True,
            holder=lambda _path: HolderStatus(99, 0, 100, True, 0, 0, 0, 0),
            rm_row=lambda version: Row(self.rm_rows.get(version, ""), "535.86, 550.54"),
        )

    def findings(self, group: Group) -> list[Finding]:
        host = self.host()
        return [finding for check in group.checks for finding in check(host)]

    def faults(self, group: Group) -> dict[str, Level]:
        """What is worse than ok, by its id."""
        return {each.id: each.level for each in self.findings(group) if each.level > Level.OK}

    def only(self, group: Group) -> Finding:
        """The one that is worse than ok."""
        [found] = [each for each in self.findings(group) if each.level > Level.OK]
        return found


Change = Callable[[Node], object]
