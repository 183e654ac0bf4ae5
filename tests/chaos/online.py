"""How long online calls take that need memory which gives way, beside faults and between them."""

import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from subprocess import PIPE

from oci_specs import paths
from sim import cards
from tests.chaos.beside import Beside
from tests.support.lending import Running
from tests.support.waiting import until

OUT_OF_MEMORY = 2
# After each fault so many calls that meet none are waited for: they say how much longer than its copies a
# call takes on this machine now. Beside faults it may take a fifth more, and a start of mgpu-checkpoint. Any
# one call may meet what no calm one did, and take twice that.
CALM, MOST, ANY = 2, 1.2, 2


@dataclass(frozen=True)
class Call:
    """By CLOCK_MONOTONIC. copied_s: of it the GPU copied memory."""

    what: str
    result: int
    began_s: float
    ended_s: float
    copied_s: float

    @property
    def took_s(self) -> float:
        return self.ended_s - self.began_s

    def without(self, stalls: Sequence[tuple[float, float]]) -> float:
        """What it took but for these, none of which overlaps another."""
        shared = ((max(self.began_s, begin_s), min(self.ended_s, end_s)) for begin_s, end_s in stalls)
        return self.took_s - sum(max(0.0, end_s - begin_s) for begin_s, end_s in shared)


class Online(Beside):
    """A container that takes all of a card, and gives it back, all the time. That card does nothing but copy
    what gives way.

    stalls: when mgpu itself was stopped; calls wait for its end.
    """

    def __init__(self, made: Running, card: int) -> None:
        super().__init__()
        self._made, self._card = made, card
        self._seen = 0
        self.calls: list[Call] = []
        self.calm: list[Call] = []
        self.helper_s: list[float] = []
        self.stalls: list[tuple[float, float]] = []

    def go_on(self) -> None:
        while not self._end.wait(0.3):
            self._call()
        if self.calls and (self.calls[-1].what, self.calls[-1].result) == ("took", 0):
            self._call()

    def _call(self) -> None:
        began_s = time.monotonic()
        self._made.program.tell()
        what, result, _ = self._made.program.line().split()
        ended_s = time.monotonic()
        self.calls.append(Call(what, int(result), began_s, ended_s, self._copied_s(began_s, ended_s)))

    def _copied_s(self, began_s: float, ended_s: float) -> float:
        found = cards.timeline(self._made.mgpu.root / "sim" / "admin.sock", self._card, self._seen)
        self._seen = found.next
        within = ((max(began_s, one.start_ns / 1e9), min(ended_s, one.end_ns / 1e9)) for one in found.spans)
        return sum(max(0.0, end_s - begin_s) for begin_s, end_s in within)

    def undisturbed(self) -> None:
        """Waits for some calls that meet no fault, and starts a helper."""
        began_s = time.monotonic()

        def calm() -> list[Call]:
            self.check()
            return [one for one in self.calls if one.began_s > began_s and one.copied_s]

        until(lambda: len(calm()) >= CALM, "online takes what is lent")
        self.calm += calm()
        self.helper_s.append(_helper_start_s())

    def judge(self) -> str:
        """None waits for more than its copies and one start of a helper, but while mgpu is stopped."""
        held = {one: one.without(self.stalls) for one in self.calls if one not in self.calm}
        for one, held_s in held.items():
            stopped_s = one.took_s - held_s
            assert one.result == 0 or (one.result == OUT_OF_MEMORY and stopped_s), one
        usual = [one.took_s / one.copied_s for one in self.calm]
        helper_s, copies_s = max(self.helper_s), max(one.copied_s for one in self.calm)
        start_s = median(self.helper_s)
        # A call that met a stop may have had its copies meanwhile.
        found = [
            (held_s - start_s) / one.copied_s
            for one, held_s in held.items()
            if one.copied_s and held_s == one.took_s
        ]
        most_s = {one: ANY * MOST * max(usual) * max(one.copied_s, copies_s) + helper_s for one in held}
        late = {one: held_s for one, held_s in held.items() if held_s > most_s[one]}
        longest = max(held, key=lambda one: held[one])
        said = (
            f"of their copies {len(usual)} calm calls take {median(usual):.2f} times, at most {max(usual):.2f}; "
            f"{len(found)} beside faults {median(found):.2f} times; "
            f"a helper starts within {start_s * 1e3:.0f} ms, at most {helper_s * 1e3:.0f}; "
            f"longest but for stops of mgpu {held[longest]:.1f} s: {longest}"
        )
        assert not late, f"{said}\n{late}"
        assert median(found) <= MOST * median(usual), said
        return said


def _helper_start_s() -> float:
    """Until it has answered its first question."""
    argv = [paths.libexec("mgpu-checkpoint"), "--libcuda", paths.lib("sim/libcuda.so.1")]
    began_s = time.monotonic()
    with subprocess.Popen(argv, stdin=PIPE, stdout=PIPE) as helper:
        assert helper.stdin is not None
        assert helper.stdout is not None
        helper.stdin.write(b"state 1\n")
        helper.stdin.flush()
        assert helper.stdout.readline()
        took_s = time.monotonic() - began_s
        helper.stdin.close()
    return took_s
