"""Power cuts by the dozen from one run: the disk as each would leave it, mended as the next boot mends it."""

import os
import random
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from lab import images, pairs
from lab.error import LabError
from lab.hosts import cuts, kernels, node, write_log
from lab.hosts.guest.settings import FOLDERS

ROUNDS = 4
_CONF, _SHIM = "etc/mgpu/runtime.conf", "usr/local/bin/containerd-shim-mgpu-v2"
ENGINES = {"etc/docker/daemon.json": (_CONF,), "etc/containerd/config.toml": (_CONF, _SHIM)}
_SBIN = "/usr/sbin"


def tried(kernel: kernels.Kernel, count: int, seed: int, say: Callable[[str], None]) -> list[str]:
    """What was wrong after any of `count` cuts, in a line each."""
    made = node.fresh(kernel, "cuts")
    log = made.folder / "writes.log"
    # The log's length once each command had ended: from then on what it did has to stay.
    ended: list[int] = []
    with made.booted("settings", node.QUICK, log=log) as guest:
        guest.does("settings:first", 300)
        ended.append(log.stat().st_size)
        for number in range(2 * ROUNDS):
            guest.does("settings:written" if number % 2 else "settings:taken_away", 120)
            ended.append(log.stat().st_size)
            say(f"command {number + 1} of {2 * ROUNDS}")
    return judged(made.folder, log, ended, count, seed, say)


def judged(
    folder: Path, log: Path, ended: Sequence[int], count: int, seed: int, say: Callable[[str], None]
) -> list[str]:
    """ended: with mgpu in place at first, each command has turned one state into the other."""
    told = write_log.entries(log)
    at = [sum(entry.end <= end for entry in told) for end in ended]
    states = [("with", "without")[number % 2] for number in range(len(at))]
    # Just after a command its files are as it left them, whatever was not flushed.
    places: list[tuple[int, tuple[str, ...]]] = [
        (place, (state,)) for place, state in zip(at, states, strict=True)
    ]
    between = range(at[0] + 1, at[-1])
    luck = random.Random(seed)
    places += [(place, ("with", "without")) for place in luck.sample(between, min(count, len(between)))]
    wrong, staged = [], 0
    for number, (place, allowed) in enumerate(places):
        trees = _after_cut(folder, log, told[:place], seed + number)
        found = trees[""]
        lines = cuts.wrong(found, [trees[name] for name in allowed])
        lines += cuts.dangling(found, ENGINES)
        wrong += [f"cut {number} at write {place} (seed {seed}): {line}" for line in lines]
        staged += bool(cuts.staged(found))
    say(f"{len(places)} cuts in {len(between)} writes, {len(wrong)} wrong; {staged} left a file on its way")
    return wrong


def _after_cut(
    folder: Path, log: Path, told: Sequence[write_log.Entry], seed: int
) -> dict[str, dict[str, bytes]]:
    """The files by now, "", and those that were kept "with" and "without" mgpu."""
    disk = folder / "cut.img"
    subprocess.run(["cp", "--sparse=always", images.root_image(pairs.LINUX_6_1), disk], check=True)
    write_log.write(log, write_log.left(told, seed), disk)
    # 1: mended, as the kernel mends it from the file system's journal.
    mended = subprocess.run([f"{_SBIN}/e2fsck", "-p", disk], capture_output=True, text=True, check=False)
    if mended.returncode not in (0, 1):
        raise LabError(f"e2fsck says {mended.returncode} of {disk}: {mended.stdout.strip()[-200:]}")
    with TemporaryDirectory(dir=folder) as made:
        tops = {"": "", "with": "/states/with", "without": "/states/without"}
        for name, top in tops.items():
            out = Path(made, f"tree-{name}")
            out.mkdir()
            for each in FOLDERS:
                (out / each[1:]).parent.mkdir(parents=True, exist_ok=True)
                said = f"rdump {top}{each} {(out / each[1:]).parent}"
                subprocess.run([f"{_SBIN}/debugfs", "-R", said, disk], capture_output=True, check=True)
        trees = {name: _tree(Path(made, f"tree-{name}")) for name in tops}
    disk.unlink()
    return trees


def _tree(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): os.fsencode(os.readlink(path))
        if path.is_symlink()
        else path.read_bytes()
        for path in folder.rglob("*")
        if path.is_symlink() or path.is_file()
    }
