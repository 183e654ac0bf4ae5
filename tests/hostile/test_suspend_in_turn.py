"""An offline tenant that takes as many calls to suspend as one may does not keep another card's waiting.

Order is judged, by the cards' own accounts and the scheduler's events, all by one clock: this machine may
stand still in between for as long as it likes.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from sim import cards
from sim.cards import Span
from tests.support import arbiter, load
from tests.support.arbiter import Arbiter
from tests.support.bundle import bundle
from tests.support.programs import Programs, inside
from tests.support.started import Foreground
from tests.support.waiting import until

CALLS_MAX = 16
CONTEXT_MIB = 240
ROUNDS = 3
# Nobody decides when they meet: under the sanitizers, on a busy machine, it took 70 s.
MEET_S = 240
BURST = ("burst", "--kernels", "1", "--kernel-us", "500", "--requests", "1000000")


@dataclass(frozen=True)
class Round:
    """One suspension of a tenant: decided, and told as done, in ns."""

    decided_ns: int
    done_ns: int


@dataclass(frozen=True)
class Tenant:
    """A container on one of the cards."""

    mgpu: Arbiter
    name: str
    running: Foreground
    card: int

    @property
    def row(self) -> dict[str, Any]:
        [found] = [one for one in self.mgpu.containers() if one["container_id"] == self.name]
        return found

    def works(self) -> None:
        until(
            lambda: any(one["container_id"] == self.name and one["pid"] for one in self.mgpu.containers()),
            f"{self.name} has a process",
        )
        until(lambda: bool(self.spans("run")), f"{self.name} runs on GPU {self.card}")

    def spans(self, kind: str) -> list[Span]:
        pid = self.row["pid"]
        found = cards.timeline(self.mgpu.root / "sim" / "admin.sock", self.card)
        assert not found.lost
        return [one for one in found.spans if (one.kind, one.tgid) == (kind, pid)]

    def rounds(self) -> list[Round]:
        grant = self.row["id"]
        told = [
            (at, kind)
            for at, _, whose, kind, *_ in self.mgpu.ask("timeline", since=0)["events"]
            if whose == grant and kind in ("suspend", "suspended")
        ]
        return [
            Round(at, told[i + 1][0])
            for i, (at, kind) in enumerate(told[:-1])
            if (kind, told[i + 1][1]) == ("suspend", "suspended")
        ]

    def clients(self) -> dict[int, int]:
        """Which client each of its groups is of."""
        pid = self.row["pid"]
        [graphics, *_] = self.mgpu.account().cards[self.card].engines
        return {group.tsg: group.client for group in graphics.groups if group.tgid == pid}


@contextmanager
def on_card(
    mgpu: Arbiter,
    card: int,
    qos: str,
    *command: str,
    mounts: Sequence[dict[str, Any]],
    memory_mib: int = 1024,
) -> Iterator[Tenant]:
    env = {
        "MGPU_MEMORY_MIB": str(memory_mib),
        "MGPU_QOS": qos,
        "NVIDIA_VISIBLE_DEVICES": str(card),
    }
    with bundle(*command, env=env, mounts=list(mounts)) as made, made.running(mgpu.runtime) as running:
        yield Tenant(mgpu, made.container, running, card)


@pytest.mark.timeout(2 * MEET_S)
def test_suspend_of_many_calls_lets_another_cards_pass(private_host: None, built: Programs) -> None:
    loads = load.mounts()
    with arbiter.running("h200:2", node_config="hold_ms = 5\n") as mgpu, ExitStack() as stack:

        def start(card: int, qos: str, *command: str, memory_mib: int = 1024) -> Tenant:
            mounts = [built.oci_mount, *loads]
            return stack.enter_context(
                on_card(mgpu, card, qos, *command, mounts=mounts, memory_mib=memory_mib)
            )

        many = start(
            *(0, "offline", inside("many_groups"), str(CALLS_MAX), "clients"),
            memory_mib=(CALLS_MAX + 1) * CONTEXT_MIB,
        )
        assert many.running.line() == f"made {CALLS_MAX} status 0"
        long = ("saturate", "--kernel-us", "10000000", "--queue", "2", "--seconds", "600")
        other = start(1, "offline", load.INSIDE, *long)
        for tenant in (many, other):
            tenant.works()
        for card, period_ms in ((0, "20"), (1, "21")):
            start(card, "online", load.INSIDE, *BURST, "--period-ms", period_ms).works()

        def met() -> list[set[int]]:
            """Both were suspended at once, this one whole: its clients that were before the other."""
            client = many.clients()
            mine, theirs = many.spans("disable"), other.spans("disable")
            found = []
            for b in other.rounds():
                off_ns = next(
                    (one.end_ns for one in theirs if b.decided_ns <= one.end_ns <= b.done_ns), None
                )
                for a in many.rounds():
                    told = [one for one in mine if a.decided_ns <= one.end_ns <= a.done_ns]
                    whole = len({client[one.tsg] for one in told}) == CALLS_MAX
                    if off_ns is not None and whole and a.decided_ns <= b.decided_ns < a.done_ns:
                        found.append({client[one.tsg] for one in told if b.decided_ns < one.end_ns < off_ns})
            return found

        until(
            lambda: len(met()) >= ROUNDS,
            "both GPUs' online work comes at once, again and again",
            timeout_s=MEET_S,
        )
        assert all(len(before) <= 1 for before in met()), "more than one call came first"
