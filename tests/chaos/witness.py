"""Whether the node is as `mgpu health` says: every few seconds a container tries it."""

import time
from collections import Counter

from mgpu_cli import health
from mgpu_cli.state import StateDir
from tests.chaos.beside import Beside
from tests.support.arbiter import Arbiter
from tests.support.bundle import bundle
from tests.support.commands import CommandFailedError

# Its main process asks the driver what its GPU is.
PROBE = "gpustat", "--no-header"
ENV = {"MGPU_MEMORY_MIB": "256", "NVIDIA_VISIBLE_DEVICES": "0"}
# A probe that is not through by then has not been served.
HANGS_S = 60.0


class Witness(Beside):
    """A health that said ok where nothing started is raised too.

    change: to be called before and after whatever befalls the node, and undone: what lies between is not
    compared.
    """

    def __init__(self, mgpu: Arbiter, every_s: float) -> None:
        super().__init__()
        self._mgpu, self._every_s = mgpu, every_s
        self._state = StateDir(mgpu.root)
        self._changes = 0
        self._wrong: list[str] = []
        self.name = "nothing"
        self.seen: Counter[str] = Counter()
        self.refusals: Counter[str] = Counter()

    def change(self, name: str = "nothing") -> None:
        self._changes += 1
        self.name = name

    def check(self) -> None:
        super().check()
        assert not self._wrong, "\n".join(self._wrong)

    def red(self) -> list[str]:
        """The rows of health that are."""
        judged, _, _ = health.judge(self._state)
        return [f"{one.name}: {one.text}" for one in judged if one.state == "failed"]

    def go_on(self) -> None:
        while not self._end.is_set():
            began_s = time.monotonic()
            self._compare()
            self._end.wait(self._every_s - (time.monotonic() - began_s))

    def _compare(self) -> None:
        number, name, before = self._changes, self.name, self.red()
        said = self._probe()
        after = self.red()
        if number != self._changes:
            self.seen["changed meanwhile"] += 1
        elif said is None:
            self.seen["red, and served" if before and after else "served"] += 1
        elif before or after:
            self.seen["red, and refused"] += 1
            self.refusals[f"{name}: {said}"] += 1
        else:
            self._wrong.append(f"health is ok beside {name}, and a container got: {said}")

    def _probe(self) -> str | None:
        """Why a container did not get its GPU."""
        with bundle(*PROBE, env=ENV) as made:
            try:
                done = made.run(self._mgpu.runtime, timeout_s=HANGS_S)
            except (CommandFailedError, OSError) as error:
                return str(error)
        return None if done.status == 0 else f"{done.out}{done.err}".strip()
