"""A cluster that is there already: kubectl, and a command that runs programs on its node."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from dataclasses import dataclass
from functools import partial
from typing import Any

from tests.support.waiting import until

Object = dict[str, Any]
# Prints the total of each GPU that a program sees, in MiB.
_TOTALS = (
    "import pynvml as n; n.nvmlInit(); print(*(n.nvmlDeviceGetMemoryInfo(n.nvmlDeviceGetHandleByIndex(i)).total >> 20"
    " for i in range(n.nvmlDeviceGetCount())))"
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
    def given() -> Cluster | None:
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
        done = subprocess.run(
            [*self.kubectl, "--namespace", self.namespace, *words],
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=180,
        )
        if done.returncode != 0:
            raise KubectlError(done.stderr.strip())
        return done.stdout

    def apply(self, *objects: Object) -> str:
        """What kubectl said, warnings included."""
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
        return self.run("apply", "-f", "-", stdin=text)

    def get(self, *words: str) -> Object:
        found: Object = json.loads(self.run("get", *words, "-o", "json"))
        return found

    def on_node(self, *argv: str) -> str:
        done = subprocess.run([*self.node, *argv], capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout

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

    def totals_mib(self, pod: str) -> list[int]:
        """Of the GPUs that a program in the pod sees."""
        return [int(word) for word in self.run("exec", pod, "--", "python3", "-c", _TOTALS).split()]

    def unschedulable(self, pod: str) -> str:
        """Why the pod waits, or ""."""
        conditions = self.get("pod", pod)["status"].get("conditions", [])
        return next(
            (one.get("message", "") for one in conditions if one.get("reason") == "Unschedulable"), ""
        )
