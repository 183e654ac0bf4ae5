"""mgpu-load in containers, and what the simulated cards say they had of them."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oci_specs import paths
from sim import cards
from sim.cards import CardAccount, GroupTime, Span
from tests.support.arbiter import Arbiter
from tests.support.bundle import Bundle, bundle
from tests.support.started import Foreground
from tests.support.waiting import until

INSIDE = "/mgpu-load"
MEMORY_MIB = 1024
SHARES_TRIED = 20


def mounts(*, shared: Path | None = None) -> list[dict[str, Any]]:
    """mgpu-load as INSIDE; shared: a folder of the host's for files that it writes, as /shared."""
    found = [
        {
            "destination": INSIDE,
            "type": "bind",
            "source": str(paths.libexec("mgpu-load")),
            "options": ["bind", "ro"],
        }
    ]
    if shared is not None:
        found.append(
            {"destination": "/shared", "type": "bind", "source": str(shared), "options": ["rbind", "rw"]}
        )
    return found


@dataclass(frozen=True)
class Load:
    """A container that runs mgpu-load."""

    mgpu: Arbiter
    made: Bundle
    running: Foreground

    @property
    def name(self) -> str:
        return self.made.container

    def row(self) -> dict[str, Any]:
        """The container as mgpud lists it."""
        [found] = [one for one in self.mgpu.containers() if one["container_id"] == self.name]
        return found

    @property
    def pid(self) -> int:
        return int(self.row()["pid"])

    def result(self, *, timeout_s: float = 60.0) -> dict[str, Any]:
        """What it reports at its end; AssertionError unless it ends well."""
        assert self.running.process.stdout is not None
        text = self.running.process.stdout.read()
        status = self.running.process.wait(timeout_s)
        assert status == 0, f"exit status {status}: {text}"
        found: dict[str, Any] = json.loads(text.strip().splitlines()[-1])
        return found

    def stop(self) -> dict[str, Any]:
        """SIGTERM, and its report."""
        self.made.call(self.mgpu.runtime, "kill", self.name, "TERM")
        return self.result()


@contextmanager
def load(
    mgpu: Arbiter,
    *args: str,
    qos: str = "online",
    core: int | None = None,
    gpus: int = 1,
    memory_mib: int = MEMORY_MIB,
    policy: str | None = None,
    shared: Path | None = None,
    annotations: dict[str, str] | None = None,
) -> Iterator[Load]:
    """Starts `mgpu-load args -o json` in a container of its own under runc."""
    env = {"MGPU_MEMORY_MIB": str(memory_mib * gpus), "MGPU_GPUS": str(gpus), "MGPU_QOS": qos}
    if core is not None:
        env["MGPU_CORE"] = str(core)
    if policy is not None:
        env["MGPU_POLICY"] = policy
    command = [INSIDE, *args, "-o", "json"]
    with bundle(*command, env=env, annotations=annotations, mounts=mounts(shared=shared)) as made:
        with made.running(mgpu.runtime) as running:
            yield Load(mgpu, made, running)


def groups_of(mgpu: Arbiter, pid: int, card: int = 0, engine: str = "graphics") -> list[GroupTime]:
    """The card's account of a process's channel groups, gone ones included."""
    return _groups(mgpu.account().cards[card], pid, engine)


def _groups(account: CardAccount, pid: int, engine: str = "graphics") -> list[GroupTime]:
    found = [*(group for one in account.engines for group in one.groups), *account.ended]
    return [group for group in found if group.tgid == pid and group.engine == engine]


def time_of(mgpu: Arbiter, pid: int, card: int = 0) -> int:
    """Engine time of a process, being switched in and out included, in ns."""
    return _time(mgpu.account().cards[card], pid)


def _time(account: CardAccount, pid: int) -> int:
    return sum(group.run_ns + group.switch_ns for group in _groups(account, pid))


def shares(mgpu: Arbiter, pids: Sequence[int], seconds: float, card: int = 0) -> list[float]:
    """Each process's part of the card's time over `seconds` from now, in percent."""
    before = mgpu.account().cards[card]
    time.sleep(seconds)
    after = mgpu.account().cards[card]
    passed_ns = after.now_ns - before.now_ns
    return [100 * (_time(after, pid) - _time(before, pid)) / passed_ns for pid in pids]


def shares_become(
    mgpu: Arbiter,
    pids: Sequence[int],
    good: Callable[[list[float]], bool],
    *,
    seconds: float = 1.0,
    card: int = 0,
) -> None:
    """Waits for seconds in which the shares are good.

    A client that is kept from its processor for longer than its queue lasts leaves the card to others, as it
    should.
    """
    seen: list[list[float]] = []
    while not seen or not good(seen[-1]):
        assert len(seen) < SHARES_TRIED, (
            f"shares of {seconds} s each: {[[round(x, 1) for x in one] for one in seen]}"
        )
        seen.append(shares(mgpu, pids, seconds, card))


def near(expected: Sequence[float], points: float) -> Callable[[list[float]], bool]:
    """Each share within so many points of what is expected; what is to have nothing has not a nanosecond."""
    return lambda got: all(
        abs(share - wanted) <= (points if wanted else 0) for share, wanted in zip(got, expected, strict=True)
    )


def spans(mgpu: Arbiter, minor: int = 0, since: int = 0) -> list[Span]:
    """The graphics engine's history; AssertionError when some of it is lost."""
    found = cards.timeline(mgpu.root / "sim" / "admin.sock", minor, since)
    assert not found.lost
    return [span for span in found.spans if span.engine == "graphics"]


def runs(found: list[Span], pid: int) -> list[Span]:
    return [span for span in found if span.kind == "run" and span.tgid == pid]


def bound(load: Load) -> None:
    """Waits until its container has a process."""
    until(
        lambda: any(one["container_id"] == load.name and one["pid"] for one in load.mgpu.containers()),
        f"{load.name} is bound",
    )


def working(load: Load, card: int = 0) -> None:
    """Waits until the card has run some of it."""
    bound(load)
    pid = load.pid
    until(lambda: time_of(load.mgpu, pid, card) > 0, f"{load.name} runs on the card")
