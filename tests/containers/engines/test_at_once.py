"""Many containers at once, as after a restart: those that have a place run, the others are refused soon."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from runtime_hook import holder
from tests.support import arbiter, host
from tests.support.arbiter import Arbiter, until_empty
from tests.support.commands import attempt, run
from tests.support.places import IMAGE_ROOTFS

REFUSED_WITHIN_S = 10.0
PER_CARD = 16


@dataclass(frozen=True)
class Size:
    cards: int
    starts: int

    @property
    def places(self) -> int:
        return self.cards * PER_CARD


@dataclass(frozen=True)
class Started:
    """How one start ended, and after how long."""

    name: str
    status: int
    said: str
    took_s: float


class Starter:
    """Containers that share one root, which they cannot write to."""

    def __init__(self, mgpu: Arbiter, home: Path) -> None:
        self.mgpu = mgpu
        self.home = home
        run("runc", "spec", "--bundle", home)
        self._spec: Any = json.loads((home / "config.json").read_text())

    def _bundle(self, name: str) -> Path:
        folder = self.home / name
        folder.mkdir()
        spec = {**self._spec, "root": {"path": os.fspath(IMAGE_ROOTFS), "readonly": True}}
        spec["process"] = {**spec["process"], "terminal": False, "args": ["sleep", "1000"]}
        spec["process"]["env"] = [*spec["process"]["env"], "MGPU_MEMORY_MIB=256"]
        spec["linux"] = {**spec["linux"], "cgroupsPath": f"/{self.home.name}/{name}"}
        (folder / "config.json").write_text(json.dumps(spec))
        return folder

    def argv(self, runtime: str | Path, *args: str | Path) -> list[str | Path]:
        return [runtime, "--root", self.home / "state", *args]

    def at_once(self, count: int) -> list[Started]:
        bundles = {
            f"{self.home.name}-{number}": self._bundle(f"{self.home.name}-{number}")
            for number in range(count)
        }
        begun: dict[str, tuple[subprocess.Popen[bytes], float]] = {}
        ended: list[Started] = []
        for name, folder in bundles.items():
            with (folder / "out").open("wb") as out:
                argv = self.argv(self.mgpu.runtime, "run", "--detach", "--bundle", folder, name)
                process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
            begun[name] = process, time.monotonic()
        while begun:
            for name, (process, began) in list(begun.items()):
                if process.poll() is not None:
                    del begun[name]
                    said = (bundles[name] / "out").read_text()
                    ended.append(Started(name, process.returncode, said, time.monotonic() - began))
            time.sleep(0.01)
        return ended

    def crash(self, *mgpu: int) -> None:
        """Kill every container and these, none of which sees another's end."""
        folder = self.home / "state"
        states = [json.loads((path / "state.json").read_text()) for path in folder.iterdir()]
        pids = [*mgpu, *(state["init_process_pid"] for state in states)]
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in pids:
                os.kill(pid, number)

    def delete_all(self) -> None:
        for name in sorted(os.listdir(self.home / "state")) if (self.home / "state").is_dir() else ():
            attempt(*self.argv("runc", "delete", "--force", name))
        host.remove_cgroups(self.home.name)


@contextmanager
def starter(mgpu: Arbiter) -> Iterator[Starter]:
    with host.home("once") as home:
        made = Starter(mgpu, home)
        try:
            yield made
        finally:
            made.delete_all()


@pytest.mark.parametrize(
    "size",
    [
        Size(1, 48),
        pytest.param(Size(4, 1000), marks=[pytest.mark.soak, pytest.mark.timeout(1800)]),
    ],
)
def test_who_has_no_place_is_refused_soon(size: Size) -> None:
    with arbiter.running(f"v100-16:{size.cards}") as mgpu, starter(mgpu) as many:
        before = mgpu.ask("health")
        ended = many.at_once(size.starts)
        refused = [one for one in ended if one.status]
        slowest_s = [max(one.took_s for one in some) for some in (ended, refused)]
        print(f"of all the slowest took {slowest_s[0]:.1f} s, of those refused {slowest_s[1]:.1f} s")
        assert len(ended) - len(refused) == size.places, [
            one for one in refused if "16 containers" not in one.said
        ]
        for one in refused:
            assert len(one.said.splitlines()) == 1, one
            assert "has 16 containers, which is the most" in one.said, one
        slow = [one for one in refused if one.took_s > REFUSED_WITHIN_S]
        assert not slow, slow[:3]
        held = mgpu.containers()
        assert [row["state"] for row in held] == ["bound"] * size.places
        after = mgpu.ask("health")
        assert (after["pid"], after["generation"]) == (before["pid"], before["generation"])
        assert holder.status(mgpu.root / "holder.sock").killed == 0
        many.delete_all()
        until_empty(mgpu)


@pytest.mark.parametrize(
    "cards", [2, pytest.param(4, marks=[pytest.mark.soak, pytest.mark.timeout(600)])], ids=["32", "64"]
)
def test_node_with_full_places_comes_up_again_in_one_pass(private_host: None, cards: int) -> None:
    """After a crash of all at once, on a state folder that is still there."""
    size = Size(cards, cards * PER_CARD)
    with host.home("again") as base:
        for generation in ("first", "again"):
            with arbiter.running(f"v100-16:{size.cards}", root=base / "r") as mgpu, starter(mgpu) as many:
                began_s = time.monotonic()
                ended = many.at_once(size.places)
                print(f"{generation}: {size.places} are up after {time.monotonic() - began_s:.1f} s")
                assert [one for one in ended if one.status] == []
                assert [row["state"] for row in mgpu.containers()] == ["bound"] * size.places
                if generation == "first":
                    many.crash(mgpu.pid, mgpu.pid_of("holder"), mgpu.pid_of("mgpud"))
                    continue
                many.delete_all()
                until_empty(mgpu)
