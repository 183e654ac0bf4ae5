"""What containers leave behind on the machine, by counting what there is before and after."""

import os
import stat
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.support import host
from tests.support.arbiter import Arbiter, stands_by
from tests.support.processes import others_here

# Where runtimes keep a folder for each container, below engines' namespaces.
_RUNTIME_STATE = (Path("/run/runc"), Path("/run/crun"), Path("/run/containerd/runc"))


@dataclass(frozen=True, kw_only=True)
class Standing:
    """Everything that a container brings and has to take with it, as names that can be told from one another.

    processes: command lines in the tests' mount namespace; sockets: by their folder, as a daemon that is
    restarted may give its own another name; descriptors: what mgpu's programs have open, by kind, and of
    sockets only what is more than one for each thread: a thread keeps a connection to the simulated card from
    its first call on.
    """

    grants: Counter[str]
    used_bytes: tuple[int, ...]
    mounts: Counter[str]
    cgroups: Counter[str]
    processes: Counter[str]
    sockets: Counter[str]
    state: Counter[str]
    descriptors: Counter[str]

    def less(self, before: "Standing") -> dict[str, object]:
        """What is more here than before, by kind; nothing where nothing was left."""
        found: dict[str, object] = {}
        for kind in ("grants", "mounts", "cgroups", "processes", "sockets", "state", "descriptors"):
            if more := getattr(self, kind) - getattr(before, kind):
                found[kind] = dict(more)
        if self.used_bytes != before.used_bytes:
            found["used_bytes"] = self.used_bytes
        return found


def standing(mgpu: Arbiter, cgroups: Iterable[str]) -> Standing:
    """Now. cgroups: names of the groups, below the hierarchies' roots, that the engines put containers
    into."""
    account = [card.used_bytes for card in mgpu.account().cards]
    return Standing(
        grants=Counter(one["container_id"] for one in mgpu.containers()),
        used_bytes=(*account, *mgpu.used_bytes()),
        mounts=Counter(map(str, host.mounts_below(Path("/")))),
        cgroups=Counter(_groups(cgroups)),
        processes=Counter(_command_lines()),
        sockets=Counter(map(os.path.dirname, _sockets("/run"))),
        state=Counter(_state()),
        descriptors=Counter(_descriptors(mgpu)),
    )


def _groups(names: Iterable[str]) -> Iterable[str]:
    roots = [host.CGROUPS, *host.CGROUPS.iterdir()]
    for top in (root / name for root in roots for name in names):
        for folder, below, _ in os.walk(top):
            yield from (os.path.join(folder, one) for one in below)


def _descriptors(mgpu: Arbiter) -> Iterable[str]:
    for program in ("holder", "mgpud"):
        process = Path(f"/proc/{mgpu.pid_of(program)}")
        # An mgpud that stands by comes when it is due: the holder has a socket to it, and its pidfd.
        standbys = _standbys(process)
        of_standbys = {"socket:": standbys, "anon_inode:": standbys}
        connections = len(os.listdir(process / "task"))
        for number in os.listdir(process / "fd"):
            with suppress(FileNotFoundError):
                # socket:[1234] and the like have a number of their own each.
                kind = os.readlink(process / "fd" / number).partition("[")[0]
                if of_standbys.get(kind):
                    of_standbys[kind] -= 1
                elif kind == "socket:" and connections:
                    connections -= 1
                else:
                    yield f"{program} {kind}"


def _standbys(parent: Path) -> int:
    found = 0
    for task in (parent / "task").iterdir():
        for pid in (task / "children").read_text().split():
            with suppress(OSError):
                found += stands_by(int(pid), Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"))
    return found


def _command_lines() -> Iterable[str]:
    for pid in others_here():
        with suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            # Threads of the kernel and the dead have none. An mgpud that stands by comes when it is due.
            if any(words) and not stands_by(pid, words):
                yield b" ".join(words).decode(errors="replace")


def _sockets(below: str) -> Iterable[str]:
    # By what the folders say of their entries: engines keep whole images here.
    with suppress(FileNotFoundError), os.scandir(below) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _sockets(entry.path)
            elif not entry.is_file(follow_symlinks=False) and not entry.is_symlink():
                with suppress(OSError):
                    if stat.S_ISSOCK(os.lstat(entry.path).st_mode):
                        yield entry.path


def _state() -> Iterable[str]:
    for top in _RUNTIME_STATE:
        for folder, below, files in os.walk(top):
            if "state.json" in files or "status" in files:
                below.clear()
                yield folder
