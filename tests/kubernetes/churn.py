"""Pods that come and go while every part is killed in turn: `python -m tests.kubernetes.churn SECONDS`.

It ends with 1 where mgpud granted more of a GPU than there is, where a start was refused that the
scheduler had placed, or where pods that fit do not run in the end.
"""

import argparse
import random
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from tests.kubernetes.cluster import SYSTEM, Cluster, KubectlError, Object
from tests.support.commands import CommandFailedError

# Of four vendors, and how many of its units a GiB is.
NAMES = {
    "mgpu.dev/memory-mib": 1024,
    "vke.volcengine.com/mgpu-memory": 1024,
    "tke.cloud.tencent.com/qgpu-memory": 1,
    "tencent.com/vcuda-memory": 4,
}
MOST_GIB = 9
WANTED = 40
TURN_S = 4.0
REST_S = 300.0


@dataclass
class Churn:
    cluster: Cluster
    random: random.Random
    made: int = 0
    looks: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    ended: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def turn(self) -> None:
        """Removes some pods and what has failed, and makes others in their place."""
        pods = self.pods()
        self._judge(pods)
        over = [pod for pod in pods if pod["status"]["phase"] in ("Failed", "Succeeded")]
        some = self.random.sample(pods, min(3, len(pods)))
        gone = {pod["metadata"]["name"] for pod in [*over, *some]}
        if gone:
            self.cluster.run("delete", "pod", *gone, "--wait=false", "--ignore-not-found")
        new = WANTED - (len(pods) - len(gone))
        self.cluster.apply(*(self._pod() for _ in range(max(0, new))))

    def _pod(self) -> Object:
        self.made += 1
        name = self.random.choice(list(NAMES))
        gib = self.random.randint(1, MOST_GIB)
        least = gib * NAMES[name]
        amount = self.random.randint(max(least - NAMES[name] + 1, 300), least) if NAMES[name] > 4 else least
        return self.cluster.pod(f"p{self.made}", limits={name: str(amount)})

    def pods(self) -> list[Object]:
        found: list[Object] = self.cluster.get("pods")["items"]
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def _judge(self, pods: list[Object]) -> None:
        for pod in pods:
            if pod["status"]["phase"] == "Failed":
                self.ended[pod["status"].get("reason", "?")] += 1
        self.look()

    def look(self) -> None:
        """At mgpud's own books; a node whose mgpud was just killed says nothing."""
        try:
            over = self.cluster.over_committed()
        except (CommandFailedError, ValueError, KeyError):
            return
        self.looks += 1
        self.faults += [f"over-committed: {each}" for each in over]

    def refused(self) -> list[str]:
        events = self.cluster.get("events", "--field-selector=reason=GPURefused")["items"]
        return [f"{event['involvedObject']['name']}: {event.get('message', '')}" for event in events]

    def kill(self) -> None:
        """One part, on one node or wherever it is."""
        node = self.random.choice(self.cluster.nodes())
        what, act = self.random.choice(self._kills(node))
        act()
        self.kills[what] += 1

    def _kills(self, node: str) -> list[tuple[str, Callable[[], object]]]:
        names = ("mgpu-node", "mgpu-scheduler", "kube-scheduler", "mgpu-admission", "mgpu-holder", "kubelet")
        return [
            ("mgpud", lambda: self.cluster.kill_mgpud(node)),
            ("node pods", lambda: self.cluster.run(SYSTEM, "rollout", "restart", "daemonset/mgpu-node")),
            *((name, partial(self.cluster.kills, name, node)) for name in names),
        ]

    def come_to_rest(self) -> None:
        """Nothing more is killed: what waits then waits for room."""
        deadline = time.monotonic() + REST_S
        while waiting := self._waiting():
            if time.monotonic() > deadline:
                self.faults.append(f"does not run: {', '.join(waiting)}")
                return
            time.sleep(TURN_S)

    def _waiting(self) -> list[str]:
        """Those that are placed and do not run, and those whose wait nothing explains."""
        found = []
        for pod in self.pods():
            status, name = pod["status"], pod["metadata"]["name"]
            if status["phase"] != "Pending":
                continue
            conditions = status.get("conditions", [])
            why = [one.get("message", "") for one in conditions if one.get("reason") == "Unschedulable"]
            if pod["spec"].get("nodeName") or not why:
                found.append(name)
        return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.kubernetes.churn")
    parser.add_argument("seconds", type=float)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--between-kills", type=float, default=20.0, metavar="SECONDS")
    told = parser.parse_args()
    anywhere = Cluster.given()
    if anywhere is None:
        parser.error("set KUBECONFIG, and MGPU_NODE to what runs a program on a node")
    seed = told.seed if told.seed is not None else random.randrange(1 << 32)
    print(f"seed {seed}", flush=True)
    churn = Churn(anywhere.in_namespace(f"mgpu-churn-{uuid.uuid4().hex[:8]}"), random.Random(seed))
    anywhere.run("create", "namespace", churn.cluster.namespace)
    began = killed = time.monotonic()
    try:
        while time.monotonic() - began < told.seconds:
            try:
                churn.turn()
                if time.monotonic() - killed >= told.between_kills:
                    killed = time.monotonic()
                    churn.kill()
            except (KubectlError, CommandFailedError) as error:
                # The API server refuses while the webhook is away, and what was killed answers nothing.
                print(f"{type(error).__name__}: {str(error)[:200]}", flush=True)
            time.sleep(TURN_S)
        churn.come_to_rest()
        churn.look()
        churn.faults += [f"refused: {each}" for each in churn.refused()]
    finally:
        anywhere.run("delete", "namespace", churn.cluster.namespace, "--wait=true")
    print(f"{churn.made} pods, {churn.looks} looks at the books, killed: {dict(churn.kills)}")
    print(f"ended by others: {dict(churn.ended)}")
    print(*churn.faults or ["nothing over-committed, and no start refused"], sep="\n")
    return 1 if churn.faults else 0


if __name__ == "__main__":
    sys.exit(main())
