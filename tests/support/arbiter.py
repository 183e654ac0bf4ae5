"""mgpu on simulated cards: what `mgpu up` starts, for tests."""

import os
import re
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runtime_hook import control
from sim import cards
from sim.cards import Account
from tests.support import host
from tests.support.commands import Done, attempt, run
from tests.support.logs import LOGS
from tests.support.places import MGPU
from tests.support.processes import daemon, kill_left_behind, others_here
from tests.support.waiting import until

Json = dict[str, Any]
PROGRAMS = ("simcard", "holder", "mgpud")


@dataclass(frozen=True)
class Arbiter:
    """A running mgpu. pid is that of `mgpu up`, program the command that started it."""

    root: Path
    pid: int
    program: Path = MGPU

    @property
    def runtime(self) -> Path:
        """What an engine is pointed at."""
        return self.root / "bin" / "mgpu-runtime"

    @property
    def control(self) -> Path:
        return self.root / "mgpud.sock"

    def ask(self, verb: str, **members: Any) -> Json:
        """A reply of mgpud's; Refusal when it refuses."""
        return control.call(str(self.control), verb, **members)

    def listing(self) -> Json:
        return self.ask("list")

    def containers(self) -> list[Json]:
        found: list[Json] = self.listing()["containers"]
        return found

    def used_bytes(self) -> list[int]:
        """Memory in use on each card by mgpud's ledger."""
        return [card["used_bytes"] for card in self.listing()["cards"]]

    def account(self) -> Account:
        """The simulated cards' own account, which the ledger has to equal."""
        return cards.account(self.root / "sim" / "admin.sock")

    def on_video(self) -> tuple[int, int]:
        """How many groups are on the first card's video engine, and its busy time in ns."""
        [video] = [engine for engine in self.account().cards[0].engines if engine.engine == "video"]
        return len(video.groups), video.busy_ns

    def mgpu(self, *args: str) -> str:
        """Output of one of the operator's commands; CommandFailedError if it fails."""
        return run(self.program, args[0], "--root", self.root, *args[1:])

    def try_mgpu(self, *args: str) -> Done:
        return attempt(self.program, args[0], "--root", self.root, *args[1:])

    def pid_of(self, program: str) -> int:
        """Pid of "simcard", "holder" or "mgpud"; mgpud is the child of a holder, or nobody's after that has
        died.
        """
        found = self.pids_of(program)
        assert len(found) == 1, f"{len(found)} running {program} below {self.root}"
        return found[0]

    def kill(self, program: str) -> int:
        """By SIGKILL; its pid."""
        pid = self.pid_of(program)
        os.kill(pid, signal.SIGKILL)
        return pid

    def pids_of(self, program: str) -> list[int]:
        wanted = program if program == "mgpud" else f"mgpu-{program}"
        below = re.compile(re.escape(bytes(self.root)) + rb"(?![\w.-])")
        parents = {}
        for pid in others_here():
            with suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                # mgpud is a script, which its interpreter is told the name of.
                names = {
                    word.rpartition(b"/")[2].decode() for word in words[: 2 if program == "mgpud" else 1]
                }
                if (
                    wanted in names
                    and any(below.match(word) for word in words)
                    and not stands_by(pid, words)
                ):
                    stat = Path(f"/proc/{pid}/stat").read_text()
                    parents[pid] = int(stat.rpartition(")")[2].split()[1])
        # A child that has not begun its own program yet looks like its parent.
        return [pid for pid, parent in parents.items() if parent not in parents]

    def standby(self) -> int | None:
        """The pid of the mgpud that has loaded and waits to be called."""
        for pid in others_here():
            with suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                if bytes(self.root) in words and Path(f"/proc/{pid}/comm").read_text() == "mgpud-standby\n":
                    return pid
        return None

    def in_use(self) -> tuple[list[int], list[int]]:
        """Bytes on each card: by mgpud's ledger, and by the card's own account."""
        return self.used_bytes(), [card.used_bytes for card in self.account().cards]


def stands_by(pid: int, words: Sequence[bytes]) -> bool:
    """Whether it is an mgpud that waits to be called: until then its standard input is its line."""
    return (
        b"--standby" in words
        and words[1].endswith(b"/mgpud")
        and os.readlink(f"/proc/{pid}/fd/0").startswith("socket:")
    )


def until_empty(mgpu: Arbiter) -> None:
    """Waits until nothing of any container is left on it, by its own ledger and by the cards'."""
    until(lambda: mgpu.containers() == [], "every grant is back")
    until(lambda: not any(mgpu.used_bytes()), "the ledger is empty")
    until(lambda: not any(card.used_bytes for card in mgpu.account().cards), "the cards are empty")


@contextmanager
def _without_store(path: Path) -> Iterator[None]:
    """A folder is where the store's socket was, which `mgpu up` cannot take back."""
    path.unlink()
    path.mkdir()
    yield
    path.rmdir()


@contextmanager
def running(
    profiles: str = "v100-16:2",
    *,
    program: Path = MGPU,
    runtime: str = "runc",
    node_config: str | None = None,
    root: Path | None = None,
    sim_options: Sequence[str] = (),
    stored: bool = True,
    under: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
) -> Iterator[Arbiter]:
    """mgpu up with simulated cards. program: another mgpu; runtime: the one below mgpu's; node_config: text
    of a node.toml.

    root: its state directory, one of its own if None. sim_options: NAME=VALUE of the simulated card. stored:
    its holder's descriptors outlive it; in a pod they do not. under: the words of a program that becomes it.
    """
    with host.home("up") as base:
        root = root or base / "r"
        log = base / "up.log"
        argv: list[str | Path] = [
            *under,
            program,
            "up",
            "--sim",
            profiles,
            "--root",
            root,
            "--runtime",
            runtime,
        ]
        argv += [word for option in sim_options for word in ("--sim-option", option)]
        if node_config is not None:
            (base / "node.toml").write_text(node_config)
            argv += ["--node-config", base / "node.toml"]
        logs = [root / "log" / f"{program}.log" for program in PROGRAMS]
        for path in logs:
            LOGS.add(path)
        try:
            # The last thing it does before it is up is to say how it is looked at.
            with (
                daemon(argv, log=log, ready=lambda: "To stop" in log.read_text(), env=env) as process,
                nullcontext() if stored else _without_store(root / "notify.sock"),
            ):
                yield Arbiter(root, process.pid, program)
        finally:
            kill_left_behind(root)
            for path in logs:
                LOGS.remove(path)
