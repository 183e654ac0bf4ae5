"""A cluster that is there already: kubectl, and a command that runs programs on its node."""

import json
import os
import shlex
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from tests.support.commands import Done, attempt, run
from tests.support.waiting import until

Object = dict[str, Any]
NODE_TIMEOUT_S = 120
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
_RUNNING_S = 120.0


class KubectlError(Exception):
    """What kubectl wrote on stderr."""


@dataclass(frozen=True)
class Cluster:
    """kubectl: the program. node: the words before a program's own, as ("ssh", "n1"). image: with Python and
    nvidia-ml-py, on every node.
    """

    kubectl: tuple[str, ...]
    node: tuple[str, ...]
    image: str
    namespace: str = "default"

    @staticmethod
    def given() -> "Cluster | None":
        """By MGPU_KUBECTL (default kubectl), MGPU_NODE and MGPU_IMAGE; None without MGPU_NODE."""
        node = os.environ.get("MGPU_NODE")
        if not node:
            return None
        return Cluster(
            tuple(shlex.split(os.environ.get("MGPU_KUBECTL", "kubectl"))),
            tuple(shlex.split(node)),
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

    def on_node(self, *argv: str) -> str:
        """The program's output; it has to succeed."""
        return run(*self.node, *argv, timeout_s=NODE_TIMEOUT_S)

    def _on_node(self, *argv: str) -> Done:
        return attempt(*self.node, *argv, timeout_s=NODE_TIMEOUT_S)

    def kill_on_node(self, program: str) -> None:
        """A program of mgpu's in Python, or another by its name, once there is one."""
        # Brackets keep a shell with this command line from being found.
        script = program in ("mgpu-node", "mgpu-scheduler")
        which = ("-f", f"[/]opt/mgpu/bin/{program}") if script else ("-x", program)
        until(lambda: self._on_node("pkill", "-KILL", *which).status == 0, f"{program} is killed")

    def mgpu(self, *words: str) -> Any:
        """A command's JSON, as root on the node."""
        return json.loads(self.on_node("/opt/mgpu/bin/mgpu", *words, "-o", "json"))

    def pod(
        self,
        name: str,
        *,
        limits: dict[str, str] | None = None,
        annotations: dict[str, str] | None = None,
        **spec: Any,
    ) -> Object:
        """A pod that sleeps. One container, with these limits."""
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
            "metadata": {"name": name, "annotations": annotations or {}},
            "spec": {"terminationGracePeriodSeconds": 1, "containers": [container], **spec},
        }

    def phase(self, name: str) -> str:
        return str(self.get("pod", name)["status"].get("phase"))

    def _runs(self, name: str) -> bool:
        return self.phase(name) == "Running"

    def running(self, *names: str) -> None:
        """Wait for them, and tell of the events when one does not come."""
        for name in names:
            try:
                until(partial(self._runs, name), f"{name} runs", timeout_s=_RUNNING_S)
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
            for one in self.mgpu("ps")
            if one["namespace"] == self.namespace and one["pod"] in pods
        }

    def restarts(self, pod: str) -> int:
        return sum(each["restartCount"] for each in self.get("pod", pod)["status"]["containerStatuses"])

    def events(self, pod: str) -> str:
        found = self.get("events", "--field-selector", f"involvedObject.name={pod}")["items"]
        return "\n".join(f"{each['reason']}: {each.get('message', '')}" for each in found)

    def mgpud_pid(self) -> int:
        """On the node; 0 while none serves."""
        # health's exit status says how well all is.
        said = self._on_node("/opt/mgpu/bin/mgpu", "health", "-o", "json").out
        return int((json.loads(said or "{}").get("mgpud") or {}).get("pid", 0))

    def in_namespace(self, name: str) -> "Cluster":
        return replace(self, namespace=name)

    def unschedulable(self, pod: str) -> str:
        """Why the pod waits, or ""."""
        conditions = self.get("pod", pod)["status"].get("conditions", [])
        return next(
            (one.get("message", "") for one in conditions if one.get("reason") == "Unschedulable"), ""
        )
