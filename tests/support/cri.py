"""What a kubelet asks of an engine to run pods, and a containerd with its CRI plugin to be asked."""

import json
import os
import subprocess
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from oci_specs import paths, vocabulary
from tests.cri.client import CallError, Client
from tests.cri.pods import ContainerSpec, PodSpec
from tests.support import containerd, host
from tests.support.containerd import Containerd
from tests.support.places import IMAGE_ARCHIVE, IMAGE_NAME
from tests.support.processes import Service
from tests.support.waiting import until
from tools.pack_image import Image, pack

PAUSE_IMAGE = "docker.io/library/mgpu-pause:latest"
SHIM = "containerd-shim-mgpu-v2"
SHIM_RUNTIME = "io.containerd.mgpu.v2"
PLAIN_RUNTIME = "io.containerd.runc.v2"
# Handlers, as a pod's RuntimeClass names them.
PLAIN = "runc"
BY_SHIM = "mgpu"
BY_BINARY = "mgpu-binary"
# The mgpu-runtime of an engine's handlers, below its home: see Kubelet.point_at.
LINK = "mgpu-runtime"
# The plugin knows its own containers, and ctr sees them, by this namespace of containerd's.
NAMESPACE = "k8s.io"
PATTERNS = sorted(
    {f"{key.name.partition('/')[0]}/*" for key in vocabulary.KEYS if key.source == vocabulary.ANNOTATION}
)

# Of a pod with hostUsers: false.
FIRST_ID, IDS = 131072, 65536
# CNI specification 1.0.0, "CNI operations".
_PLUGIN_OF_NETWORK = """\
#!/bin/sh
cat >/dev/null
case $CNI_COMMAND in
VERSION) echo '{"cniVersion": "1.0.0", "supportedVersions": ["0.4.0", "1.0.0"]}' ;;
ADD) echo '{"cniVersion": "1.0.0", "ips": [{"address": "192.0.2.1/24"}]}' ;;
esac
"""
_PAUSE_C = "#include <unistd.h>\nint main(void)\n{\n    for (;;)\n        pause();\n}\n"
# No CAP_SYS_RESOURCE is needed to run a sandbox with its oom score as it is.
_PLUGIN = """\
[plugins."{cri}"]
  {pause_of_1}
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."{cri}".cni]
    bin_dir = "{home}/cni"
    conf_dir = "{home}/cni"
  [plugins."{cri}".containerd]
    default_runtime_name = "{plain}"
    [plugins."{cri}".containerd.runtimes.{plain}]
      runtime_type = "{plain_runtime}"
    [plugins."{cri}".containerd.runtimes.{by_shim}]
      runtime_type = "{shim_runtime}"
      pod_annotations = {patterns}
      container_annotations = {patterns}
    [plugins."{cri}".containerd.runtimes.{by_binary}]
      runtime_type = "{plain_runtime}"
      pod_annotations = {patterns}
      container_annotations = {patterns}
      [plugins."{cri}".containerd.runtimes.{by_binary}.options]
        BinaryName = "{home}/{link}"
{pause_of_2}
"""


@dataclass(frozen=True, kw_only=True)
class Executed:
    """A command that ExecSync ran to its end."""

    status: int
    out: str
    err: str


@dataclass
class Pod:
    """A pod that was started: its sandbox, and its containers' ids by their names."""

    spec: PodSpec
    id: str
    config: dict[str, Any]
    logs: Path
    containers: dict[str, str] = field(default_factory=dict)

    @property
    def container(self) -> str:
        """The id of its only container."""
        [only] = self.containers.values()
        return only


@dataclass(frozen=True)
class Kubelet:
    """Runs pods on an engine as a kubelet does, in the host's network: no network plugin is needed.

    home: the engine's folder. service: the engine itself, to be restarted.
    """

    home: Path
    service: Service = field(repr=False, compare=False)
    client: Client

    def point_at(self, runtime: Path) -> None:
        """Have the engine's handlers of mgpu, and ctr with the shim, start `runtime`, a mgpu-runtime."""
        link = self.home / LINK
        if link.is_symlink() and link.readlink() == runtime:
            return
        fresh = self.home / f"{LINK}.new"
        fresh.symlink_to(runtime)
        fresh.rename(link)

    def wait_ready(self) -> None:
        """Returns once the engine answers, which containerd does once it has looked at what is there."""
        until(lambda: _ready(self.client), "the engine knows the images")

    def restart(self) -> None:
        """Restarts the engine."""
        self.service.restart()
        self.wait_ready()

    def run(
        self, spec: PodSpec, handler: str, *, mounts: Sequence[dict[str, Any]] = (), attempt: int = 0
    ) -> Pod:
        """Starts a pod with all its containers. What was made of a pod that cannot be started is removed."""
        pod = self.sandbox(spec, handler, attempt=attempt)
        try:
            for container in spec.containers:
                self.start(pod, container, mounts=mounts)
        except BaseException:
            with suppress(CallError):
                self.remove(pod)
            raise
        return pod

    def sandbox(self, spec: PodSpec, handler: str, *, attempt: int = 0) -> Pod:
        """The pod without a container. attempt: one more than before where that one may still be around."""
        uid = str(uuid.uuid4())
        logs = self.home / "logs" / f"{spec.namespace}_{spec.name}_{uid}"
        logs.mkdir(parents=True)
        config = {
            "metadata": {"name": spec.name, "uid": uid, "namespace": spec.namespace, "attempt": attempt},
            "log_directory": os.fspath(logs),
            "labels": {
                **spec.labels,
                "io.kubernetes.pod.name": spec.name,
                "io.kubernetes.pod.namespace": spec.namespace,
                "io.kubernetes.pod.uid": uid,
            },
            "annotations": dict(spec.annotations),
            "linux": {
                "cgroup_parent": f"/{self.home.name}",
                "security_context": {
                    "namespace_options": _namespaces(spec),
                    "seccomp": {"profile_type": "RuntimeDefault"},
                },
            },
        }
        made = self.client.call("RunPodSandbox", config=config, runtime_handler=handler)
        return Pod(spec, made.pod_sandbox_id, config, logs)

    def start(self, pod: Pod, spec: ContainerSpec, *, mounts: Sequence[dict[str, Any]] = ()) -> str:
        """Creates and starts one of the pod's containers; its id."""
        config = {
            "metadata": {"name": spec.name},
            "image": {"image": spec.image, "user_specified_image": spec.image},
            "command": spec.command,
            "working_dir": spec.working_dir,
            "envs": [{"key": key, "value": value} for key, value in spec.env.items()],
            "mounts": mounts,
            "labels": {**pod.config["labels"], "io.kubernetes.container.name": spec.name},
            "annotations": dict(spec.annotations),
            "log_path": f"{spec.name}.log",
            "linux": {
                "security_context": {
                    "namespace_options": _namespaces(pod.spec),
                    "seccomp": {"profile_type": "RuntimeDefault"},
                }
            },
        }
        made = self.client.call(
            "CreateContainer", pod_sandbox_id=pod.id, config=config, sandbox_config=pod.config
        )
        pod.containers[spec.name] = made.container_id
        self.client.call("StartContainer", container_id=made.container_id)
        return str(made.container_id)

    def execute(self, container: str, *command: str, timeout_s: int = 60) -> Executed:
        done = self.client.call("ExecSync", container_id=container, cmd=command, timeout=timeout_s)
        return Executed(
            status=done.exit_code,
            out=done.stdout.decode(errors="replace"),
            err=done.stderr.decode(errors="replace"),
        )

    def output(self, pod: Pod, container: str) -> str:
        """What a container of the pod has printed, out of its log of lines `TIME STREAM F|P TEXT`."""
        path = pod.logs / f"{container}.log"
        lines = path.read_text().splitlines() if path.exists() else []
        return "".join(
            text + ("\n" if tag == "F" else "") for _, _, tag, text in (line.split(" ", 3) for line in lines)
        )

    def exit_code(self, container: str) -> int | None:
        """None while it runs."""
        status = self.client.call("ContainerStatus", container_id=container).status
        return int(status.exit_code) if status.state == 2 else None

    def remove(self, pod: Pod) -> None:
        """The end of a pod that is deleted without a grace period; as a kubelet does, it asks again after a
        no.

        containerd 1.6 hangs up on a container's shim when it sees that it has exited, also while it is being
        stopped, and answers "ttrpc: closed".
        """
        for container in pod.containers.values():
            retried(partial(self.client.call, "StopContainer", container_id=container, timeout=0))
            retried(partial(self.client.call, "RemoveContainer", container_id=container))
        retried(partial(self.remove_sandbox, pod.id))

    def remove_sandbox(self, sandbox: str) -> None:
        """Removes a sandbox with whatever is in it."""
        self.client.call("StopPodSandbox", pod_sandbox_id=sandbox)
        self.client.call("RemovePodSandbox", pod_sandbox_id=sandbox)

    def sandboxes(self, name: str | None = None) -> list[str]:
        """Ids of all sandboxes, or of those of the pods called name."""
        told = {} if name is None else {"label_selector": {"io.kubernetes.pod.name": name}}
        return [one.id for one in self.client.call("ListPodSandbox", filter=told).items]

    def clear(self) -> None:
        """Removes every pod that can be removed."""
        for left in self.sandboxes():
            with suppress(CallError):
                retried(partial(self.remove_sandbox, left), timeout_s=10.0)

    def shim_of(self, pod: Pod) -> int | None:
        """Pid of the pod's shim; None if it has none."""
        return shim_pid(pod.id)


@dataclass(frozen=True)
class OnContainerd(Kubelet):
    """Handlers: PLAIN, BY_SHIM and BY_BINARY."""

    containerd: Containerd


def _namespaces(spec: PodSpec) -> dict[str, Any]:
    """hostUsers of a pod: false takes a network of its own."""
    if spec.host_users:
        return {"network": "NODE", "pid": "CONTAINER"}
    ids = [{"host_id": FIRST_ID, "container_id": 0, "length": IDS}]
    return {
        "network": "POD",
        "pid": "CONTAINER",
        "userns_options": {"mode": "POD", "uids": ids, "gids": ids},
    }


def without_network(folder: Path) -> None:
    """A network plugin that makes nothing: pods have a network namespace of their own, and no network."""
    folder.mkdir()
    for name in ("nothing", "loopback"):
        (folder / name).write_text(_PLUGIN_OF_NETWORK)
        (folder / name).chmod(0o755)
    told = {"cniVersion": "1.0.0", "name": "of-tests", "plugins": [{"type": "nothing"}]}
    (folder / "10-nothing.conflist").write_text(json.dumps(told))


def shim_pid(task: str) -> int | None:
    """Pid of the shim that was started for a task of containerd's, by its id."""
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with suppress(OSError):
                words = Path("/proc", entry, "cmdline").read_bytes().split(b"\0")
                if b"containerd-shim" in words[0] and task.encode() in words:
                    return int(entry)
    return None


def pod_of(*command: str, annotations: dict[str, str] | None = None, name: str | None = None) -> PodSpec:
    """A pod of one container of the test image; annotations are the container's."""
    container = ContainerSpec(name="main", image=IMAGE_NAME, command=command, annotations=annotations or {})
    return PodSpec(name=name or f"t-{uuid.uuid4().hex[:8]}", containers=(container,))


def with_test_image(spec: PodSpec, *command: str) -> PodSpec:
    """The pod with the test image in all its containers, to run command there."""
    return replace(
        spec,
        containers=tuple(replace(one, image=IMAGE_NAME, command=command) for one in spec.containers),
    )


@contextmanager
def running(name: str = "cri") -> Iterator[OnContainerd]:
    """A containerd with the CRI plugin and the test image."""
    with host.home(f"{name}-i") as images:
        pause = pause_archive(images)
        with containerd.running(
            name,
            images=(IMAGE_ARCHIVE, pause),
            namespace=NAMESPACE,
            plugins=_plugin,
            path=_shim_folder,
        ) as below:
            with Client(below.address) as client:
                kubelet = OnContainerd(below.home, below.service, client, below)
                kubelet.wait_ready()
                try:
                    yield kubelet
                finally:
                    kubelet.clear()


def _ready(client: Client) -> bool:
    try:
        found = [client.call("ImageStatus", image={"image": image}) for image in (IMAGE_NAME, PAUSE_IMAGE)]
    except CallError:
        return False
    return all(one.HasField("image") for one in found)


def _plugin(home: Path) -> str:
    without_network(home / "cni")
    pause = f'sandbox_image = "{PAUSE_IMAGE}"'
    pinned = f'[plugins."io.containerd.cri.v1.images".pinned_images]\n  sandbox = "{PAUSE_IMAGE}"'
    first = containerd.major() < 2
    return _PLUGIN.format(
        home=home,
        link=LINK,
        cri=containerd.cri_plugin(),
        pause_of_1=pause if first else "",
        pause_of_2="" if first else pinned,
        patterns=json.dumps(PATTERNS),
        plain=PLAIN,
        by_shim=BY_SHIM,
        by_binary=BY_BINARY,
        plain_runtime=PLAIN_RUNTIME,
        shim_runtime=SHIM_RUNTIME,
    )


def _shim_folder(home: Path) -> Path:
    """A folder with the shim, whose runc is the link that point_at sets; a folder apart, or others would find
    it.
    """
    folder, path = home / "bin", home / "path"
    for made in (folder, path):
        made.mkdir()
    (path / "runc").symlink_to(home / LINK)
    script = folder / SHIM
    script.write_text(f"#!{paths.libexec(SHIM)} --mgpu-path={path}\n")
    script.chmod(0o755)
    return folder


def pause_archive(home: Path) -> Path:
    """An image whose program does nothing: no registry is asked for Kubernetes' own."""
    source, rootfs, archive = home / "pause.c", home / "rootfs", home / "pause.tar"
    source.write_text(_PAUSE_C)
    rootfs.mkdir()
    subprocess.run(["gcc", "-O2", "-static", "-o", rootfs / "pause", source], check=True)
    pack(archive, Image(name=PAUSE_IMAGE, layers=[rootfs], command=("/pause",)))
    return archive


def retried(call: Any, *, timeout_s: float = 60.0) -> Any:
    """What call() returns, tried again while the engine is away, as a kubelet does at its next look at a
    pod."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return call()
        except CallError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
