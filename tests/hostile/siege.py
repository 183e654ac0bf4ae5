"""A mgpu that is attacked, and a neighbour on the same card who is to notice nothing.

One mgpu for all attempts of a file: what one of them spoils, the next ones show. The judge is the card's own
account.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sim import cards
from sim.cards import Span
from tests.support import arbiter
from tests.support.arbiter import Arbiter
from tests.support.bundle import Bundle, bundle
from tests.support.programs import Programs, inside
from tests.support.started import Foreground
from tests.support.waiting import until

MIB = 1 << 20
CAP_MIB = 512
HOLD_MS = 200
# The card's time between two looks at its account; what a call of another container may at most wait behind
# the attacker's in the simulated driver, whose lock is one, on a machine with two processors.
NEIGHBOUR_MAX_US = 1_000_000


@dataclass(frozen=True)
class Attempt:
    """A container that tries something. cap_mib: what it was granted."""

    mgpu: Arbiter
    made: Bundle
    running: Foreground
    cap_mib: int
    since: int

    @property
    def row(self) -> dict[str, Any]:
        """The container as mgpud lists it."""
        [found] = [one for one in self.mgpu.containers() if one["container_id"] == self.made.container]
        return found

    def line(self) -> str:
        return self.running.line()

    def numbers(self) -> list[int]:
        """The numbers of its next line; words are left out."""
        return [int(word, 0) for word in self.line().split() if word.lstrip("-")[:1].isdigit()]

    @property
    def used_bytes(self) -> int:
        """What it holds by the ledger."""
        return sum(int(share["used_bytes"]) for share in self.row["cards"])

    def under_the_cap(self) -> None:
        for share in self.row["cards"]:
            assert share["used_bytes"] <= share["peak_bytes"] <= self.cap_mib * MIB, share

    def has_ended(self) -> bool:
        return self.running.process.poll() is not None

    def kill(self) -> None:
        self.made.call(self.mgpu.runtime, "kill", self.made.container, "KILL")

    def runs(self) -> list[Span]:
        """When the card executed it, since it started."""
        pids = {self.row["pid"], *(process["pid"] for process in self.row["processes"])}
        found = cards.timeline(self.mgpu.root / "sim" / "admin.sock", 0, self.since)
        assert not found.lost
        return [one for one in found.spans if one.kind == "run" and one.tgid in pids]

    def turns(self) -> list[tuple[int, str]]:
        """(when in ns, "suspend", "suspended", "resume" or "running"): what the scheduler decided and did."""
        grant = self.row["id"]
        return [
            (at, kind)
            for at, _, whose, kind, *_ in self.mgpu.ask("timeline", since=0)["events"]
            if whose == grant and kind in ("suspend", "suspended", "resume", "running")
        ]

    def suspended(self) -> list[tuple[int, int]]:
        """(from, to) in ns of each time that it was off the card."""
        turns = [turn for turn in self.turns() if turn[1] in ("suspended", "resume")]
        return [(at, turns[i + 1][0]) for i, (at, kind) in enumerate(turns[:-1]) if kind == "suspended"]

    def never_ran_suspended(self, *, at_least_ns: int) -> None:
        """Waits until it was off for so long at once and is resumed; not for a ns of that was it on the
        card."""
        until(lambda: any(end - begin >= at_least_ns for begin, end in self.suspended()), "it is resumed")
        off, mine = self.suspended(), self.runs()
        for begin, end in off:
            assert [span for span in mine if span.end_ns > begin and span.start_ns < end] == []


@dataclass
class Siege:
    """mgpu, and the neighbour."""

    mgpu: Arbiter
    built: Programs
    neighbour: Foreground
    mgpud: int = field(init=False)

    def __post_init__(self) -> None:
        self.mgpud = self.mgpu.pid_of("mgpud")

    def neighbour_is_well(self) -> None:
        """It makes and frees files, clients and memory as if it were alone."""
        self.neighbour.tell()
        said = self.neighbour.line()
        assert said.startswith("well "), said
        assert int(said.split()[1]) < NEIGHBOUR_MAX_US, said

    def counts_agree(self) -> int:
        """What the card says is in use, which the ledger says too."""
        on_card = [card.used_bytes for card in self.mgpu.account().cards]
        assert self.mgpu.used_bytes() == on_card
        return sum(on_card)

    def over(self) -> None:
        """Nothing is left of any attempt, and all others are alive and well."""
        until(lambda: len(self.mgpu.containers()) == 1, "the grants are back")
        until(lambda: self.mgpu.account().cards[0].used_bytes == 0, "the card is empty")
        until(lambda: self.mgpu.used_bytes() == [0], "so is the ledger")
        assert self.mgpu.pid_of("mgpud") == self.mgpud, "mgpud was started again"
        self.neighbour_is_well()

    @contextmanager
    def attempt(
        self,
        program: str,
        *args: str,
        cap_mib: int = CAP_MIB,
        qos: str = "online",
        shared: Path | None = None,
        pids: int | None = None,
        user: int | None = None,
    ) -> Iterator[Attempt]:
        """A container that runs one of tests/programs/hostile; killed at the end.

        shared: a folder of the host's as /shared. pids: at most so many processes.
        """
        mounts = [self.built.oci_mount]
        if shared is not None:
            mounts.append(
                {"destination": "/shared", "type": "bind", "source": str(shared), "options": ["rbind", "rw"]}
            )
        env = {"MGPU_MEMORY_MIB": str(cap_mib), "MGPU_QOS": qos}
        since = cards.timeline(self.mgpu.root / "sim" / "admin.sock", 0).next
        with bundle(inside(program), *args, env=env, mounts=mounts) as made:

            def limit(config: Any) -> None:
                if pids is not None:
                    config["linux"]["resources"]["pids"] = {"limit": pids}
                if user is not None:
                    config["process"]["user"] = {"uid": user, "gid": user}

            made.edit(limit)
            with made.running(self.mgpu.runtime) as running:
                until(
                    lambda: running.process.poll() is not None or self._bound(made), "it runs, or has ended"
                )
                yield Attempt(self.mgpu, made, running, cap_mib, since)

    def _bound(self, made: Bundle) -> bool:
        return any(
            one["container_id"] == made.container and one["state"] == "bound"
            for one in self.mgpu.containers()
        )


@contextmanager
def laid(built: Programs, card: str = "h200", options: Sequence[str] = ()) -> Iterator[Siege]:
    """mgpu on one simulated card, an H200 large enough for hundreds of contexts, with a neighbour at work."""
    with (
        arbiter.running(f"{card}:1", sim_options=options, node_config=f"hold_ms = {HOLD_MS}\n") as mgpu,
        built.bundle("neighbour", env={"MGPU_MEMORY_MIB": "256"}) as made,
        made.running(mgpu.runtime) as neighbour,
    ):
        assert neighbour.line() == "ready"
        siege = Siege(mgpu, built, neighbour)
        siege.neighbour_is_well()
        yield siege


def open_files(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))
