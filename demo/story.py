"""The acts: a request as Kubernetes writes it, one as Docker users write it, and one that is refused."""

import shlex
import subprocess

from demo import seen
from demo.arbiter import Arbiter
from demo.containerd import CTR_TIMEOUT_S, IMAGE, Containerd
from demo.report import Report
from demo.seen import Promise

# On a V100-16 of 16160 MiB: 15 units of 1077.33 MiB, 8 of them over 2 cards are 4 a card.
ACK = ("--annotation", "aliyun.com/gpu-mem=8", "--annotation", "aliyun.com/gpu-count=2")
ACK_PROMISE = Promise(cards=2, memory_mib=4309)
BY_ENVIRONMENT = ("--env", "MGPU_MEMORY_MIB=4096")
BY_ENVIRONMENT_PROMISE = Promise(cards=1, memory_mib=4096)
INDIVISIBLE = ("--annotation", "aliyun.com/gpu-mem=9", "--annotation", "aliyun.com/gpu-count=2")


def tell(report: Report, containerd: Containerd, arbiter: Arbiter) -> None:
    report.heading("aliyun.com/gpu-mem: 8 and gpu-count: 2, with 15 units of 1077 MiB a GPU")
    report.say("8 units over 2 GPUs are 4 a GPU: 4309 MiB. The container takes it all.")
    report.command(_shown(ACK))
    pod = containerd.run("ack", ACK, arbiter.runtime)
    seen.granted(report, arbiter, pod, ACK_PROMISE)

    report.heading("MGPU_MEMORY_MIB=4096 in the environment, as with docker run -e")
    report.command(_shown(BY_ENVIRONMENT))
    docker = containerd.run("env", BY_ENVIRONMENT, arbiter.runtime)
    seen.granted(report, arbiter, docker, BY_ENVIRONMENT_PROMISE)

    report.heading("A request that cannot be met: 9 units over 2 GPUs")
    _refused(report, containerd, arbiter)

    report.heading("Both go on after their out-of-memory, and end")
    for container in (pod, docker):
        seen.lives_on(report, container)


def _refused(report: Report, containerd: Containerd, arbiter: Arbiter) -> None:
    argv = containerd.argv(*containerd.command("refused", INDIVISIBLE, arbiter.runtime, "true"))
    done = subprocess.run(
        argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=CTR_TIMEOUT_S
    )
    report.command(_shown(INDIVISIBLE), done.stderr)
    report.check("the container was not started", True, done.returncode != 0)
    report.check("lines that say why", 1, len(done.stderr.splitlines()))
    report.check("the line is mgpu's own", True, "mgpu: " in done.stderr)
    report.check("it names the key and its value", True, 'aliyun.com/gpu-mem "9"' in done.stderr)


def _shown(request: tuple[str, ...]) -> str:
    return f"ctr run --rm --runc-binary ROOT/bin/mgpu-runtime {shlex.join(request)} {IMAGE} ID COMMAND"
