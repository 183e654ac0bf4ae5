"""A cluster that is there already: kubectl, and a command that runs programs on its nodes."""

import collections
import json
import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from tests.support import waiting
from tests.support.commands import Done, attempt, run

Object = dict[str, Any]
NODE_TIMEOUT_S = 120
SYSTEM = "--namespace=mgpu-system"
# Each look is a program of its own, often several.
until = partial(waiting.until, timeout_s=180.0, poll_s=0.3)
# Prints the total of each GPU that a program sees, in MiB.
_TOTALS = (
    "import pynvml as n; n.nvmlInit(); print(*(n.nvmlDeviceGetMemoryInfo(n.nvmlDeviceGetHandleByIndex(i)).total >> 20"
    " for i in range(n.nvmlDeviceGetCount())))"
)
# Allocates so many MiB on the first GPU and prints CUDA's answer: 0, or 2 for out of memory.
_ALLOCATE = (
    "import ctypes as c, sys; cuda = c.CDLL('libcuda.so.1'); context, at = c.c_void_p(), c.c_uint64();"
    " assert not cuda.cuInit(0) and not cuda.cuCtxCreate_v2(c.byref(context), 0, 0);"
    " print(cuda.cuMemAlloc_v2(c.byref(at), c.c_size_t(int(sys.argv[1]) << 20)))"
)


def _which(program: str) -> tuple[str, str]:
    """What tells pkill a program of mgpu's in Python, or another by its name."""
    # Brackets keep a shell with this command line from being found.
    script = program in ("mgpu-node", "mgpu-scheduler", "mgpu-admission")
    return ("-f", f"[/]opt/mgpu/bin/{program}( |$)") if script else ("-x", program)


class KubectlError(Exception):
    """What kubectl wrote on stderr."""


@dataclass(frozen=True)
class Cluster:
    """kubectl: the program. at: the words before a program's own, as ("ssh", "{}"), where {} is the node's
    name. image: with Python and nvidia-ml-py, on every node.
    """

    kubectl: tuple[str, ...]
    at: tuple[str, ...]
    image: str
    namespace: str = "default"

    @staticmethod
    def given() -> "Cluster | None":
        """By MGPU_KUBECTL (default kubectl), MGPU_NODE and MGPU_IMAGE; None without MGPU_NODE."""
        at = os.environ.get("MGPU_NODE")
        if not at:
            return None
        return Cluster(
            tuple(shlex.split(os.environ.get("MGPU_KUBECTL", "kubectl"))),
            tuple(shlex.split(at)),
            os.environ.get("MGPU_IMAGE", "mgpu-test:latest"),
        )

    def run(self, *words: str, stdin: str = "") -> str:
        """kubectl WORDS in the namespace; KubectlError when it fails."""
        done = attempt(*self.kubectl, "--namespace", self.namespace, *words, stdin=stdin, timeout_s=180)
        if done.status != 0:
            raise KubectlError(done.err.strip())
        return done.out

    def succeeds(self, *words: str) -> bool:
        try:
            self.run(*words)
        except KubectlError:
            return False
        return True

    def apply(self, *objects: Object) -> str:
        """What kubectl said, warnings included."""
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
        return self.run("apply", "-f", "-", stdin=text)

    def get(self, *words: str) -> Object:
        found: Object = json.loads(self.run("get", *words, "-o", "json"))
        return found

    def minor(self) -> int:
        """34 of an API server of 1.34."""
        version = json.loads(self.run("version", "-o", "json"))["serverVersion"]["minor"]
        return int(version.rstrip("+"))

    def nodes(self) -> list[str]:
        """Those that share their GPUs."""
        return [node["metadata"]["name"] for node in self.get("nodes", "-l", "mgpu.dev/node=true")["items"]]

    def on_node(self, node: str, *argv: str) -> str:
        """The program's output; it has to succeed."""
        return run(*self._words(node), *argv, timeout_s=NODE_TIMEOUT_S)

    def _on_node(self, node: str, *argv: str) -> Done:
        return attempt(*self._words(node), *argv, timeout_s=NODE_TIMEOUT_S)

    def _words(self, node: str) -> list[str]:
        return [word.replace("{}", node) for word in self.at]

    def kills(self, program: str, node: str) -> bool:
        """Whether there was one."""
        return self._on_node(node, "pkill", "-KILL", *_which(program)).status == 0

    def kill(self, program: str, *nodes: str) -> None:
        """Once there is one on any of these nodes."""
        until(
            lambda: True in [self.kills(program, node) for node in nodes or self.nodes()],
            f"{program} is killed",
        )

    def mgpu(self, node: str, *words: str) -> Any:
        """A command's JSON, as root on the node."""
        return json.loads(self.on_node(node, "/opt/mgpu/bin/mgpu", *words, "-o", "json"))

    def cards(self) -> list[Object]:
        """All nodes' GPUs, as mgpud lists them."""
        return [one | {"node": node} for node in self.nodes() for one in self.mgpu(node, "devices")]

    def containers(self) -> list[Object]:
        """All that mgpud serves on any node."""
        return [one for node in self.nodes() for one in self.mgpu(node, "ps")]

    def over_committed(self) -> list[str]:
        """GPUs of which mgpud granted more than there is: its grants are none of the scheduler's."""
        granted: collections.Counter[str] = collections.Counter()
        for one in self.containers():
            for card in one["cards"]:
                granted[card["uuid"]] += card["memory_mib"]
        return [
            f"{card['node']} {card['uuid']}: {granted[card['uuid']]} of {card['memory_mib']} MiB"
            for card in self.cards()
            if granted[card["uuid"]] > card["memory_mib"]
        ]

    @contextmanager
    def alone(self, node: str) -> Iterator[None]:
        """Meanwhile pods are placed on no other node."""
        others = [name for name in self.nodes() if name != node]
        for name in others:
            self.run("cordon", name)
        try:
            yield
        finally:
            for name in others:
                self.run("uncordon", name)

    def pod(
        self,
        name: str,
        *,
        limits: dict[str, str] | None = None,
        annotations: dict[str, str] | None = None,
        labels: dict[str, str] | None = None,
        node: str = "",
        **spec: Any,
    ) -> Object:
        """A pod that sleeps. One container, with these limits. node: where it has to be placed."""
        if node:
            spec["nodeSelector"] = {"kubernetes.io/hostname": node}
        container = {
            "name": "main",
            "image": self.image,
            "imagePullPolicy": "IfNotPresent",
            "command": ["sleep", "infinity"],
            "resources": {"limits": limits or {}},
        }
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "annotations": annotations or {}, "labels": labels or {}},
            "spec": {"terminationGracePeriodSeconds": 1, "containers": [container], **spec},
        }

    def phase(self, name: str) -> str:
        return str(self.get("pod", name)["status"].get("phase"))

    def node_of(self, pod: str) -> str:
        return str(self.get("pod", pod)["spec"]["nodeName"])

    def _runs(self, name: str) -> bool:
        return self.phase(name) == "Running"

    def running(self, *names: str) -> None:
        """Wait for them, and tell of the events when one does not come."""
        for name in names:
            try:
                until(partial(self._runs, name), f"{name} runs")
            except AssertionError as error:
                raise AssertionError(f"{error}\n{self.run('describe', 'pod', name)}") from None

    def totals_mib(self, pod: str, container: str = "") -> list[int]:
        """Of the GPUs that a program in the pod sees."""
        return [int(word) for word in self._python(pod, container, _TOTALS).split()]

    def allocates(self, pod: str, mib: int, container: str = "") -> bool:
        """Whether a program in the pod can; False when CUDA says that it is out of memory."""
        answer = int(self._python(pod, container, _ALLOCATE, str(mib)))
        assert answer in (0, 2), f"CUDA error {answer}"
        return answer == 0

    def _python(self, pod: str, container: str, *words: str) -> str:
        which = ["--container", container] if container else []
        return self.run("exec", pod, *which, "--", "python3", "-c", *words)

    def served(self, *pods: str) -> dict[str, list[str]]:
        """The GPUs' UUIDs of each container of these pods that mgpud serves, by POD/CONTAINER."""
        return {
            f"{one['pod']}/{one['container']}": [card["uuid"] for card in one["cards"]]
            for one in self.containers()
            if one["namespace"] == self.namespace and one["pod"] in pods
        }

    def restarts(self, pod: str) -> int:
        return sum(each["restartCount"] for each in self.get("pod", pod)["status"]["containerStatuses"])

    def events(self, pod: str) -> str:
        found = self.get("events", "--field-selector", f"involvedObject.name={pod}")["items"]
        return "\n".join(f"{each['reason']}: {each.get('message', '')}" for each in found)

    def kill_mgpud(self, node: str) -> int:
        """Its pid; mgpu-holder has its name among its arguments."""
        until(lambda: self.mgpud_pid(node) != 0, "mgpud serves")
        pid = self.mgpud_pid(node)
        self.on_node(node, "kill", "-KILL", str(pid))
        return pid

    def mgpud_pid(self, node: str) -> int:
        """On the node; 0 while none serves."""
        # health's exit status says how well all is.
        said = self._on_node(node, "/opt/mgpu/bin/mgpu", "health", "-o", "json").out
        return int((json.loads(said or "{}").get("mgpud") or {}).get("pid", 0))

    def in_namespace(self, name: str) -> "Cluster":
        return replace(self, namespace=name)

    def unschedulable(self, pod: str) -> str:
        """Why the pod waits, or ""."""
        conditions = self.get("pod", pod)["status"].get("conditions", [])
        return next(
            (one.get("message", "") for one in conditions if one.get("reason") == "Unschedulable"), ""
        )
