"""nvidia.ko and nvidia-uvm.ko of a pair, built without DKMS from what Debian's packages hold, unchanged."""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import IO

from lab import packages
from lab.error import LabError
from lab.pairs import PAIRS, Pair
from lab.places import LAB, REPOSITORY, made_anew

MODULES = ("nvidia.ko", "nvidia-uvm.ko")
REACHED = "reached.ko"
LOG_LINES = 5


def built(pair: Pair) -> Path:
    """The folder with the two modules, without what a debugger alone would read."""
    folder = LAB / "modules" / pair.name
    if not folder.exists():
        sources, root = packages.driver_sources(pair.driver), packages.kernel_root(pair.kernel)
        print(f"lab: building the modules of {pair.name} (three minutes of one core)", flush=True)
        with made_anew(folder) as new:
            _build(pair, sources, root, new)
    return folder


def reached(pair: Pair) -> bytes:
    """A small driver of ours that asks NVIDIA's driver what a NIC's asks. It is compiled by NVIDIA's header
    alone, so the kernel cannot check the versions of the symbols that it uses. Kept by kernel and sources.
    """
    header = packages.driver_sources(PAIRS[0].driver) / "nvidia/nv-p2p.h"
    sources = b"".join(
        path.read_bytes() for path in (header, *sorted((REPOSITORY / "lab/reached").iterdir()))
    )
    kept = LAB / f"reached-{pair.kernel.release}-{hashlib.sha256(sources).hexdigest()[:16]}.ko"
    if not kept.exists():
        new = kept.with_suffix(".new")
        new.write_bytes(_reached(pair, header))
        new.rename(kept)
    return kept.read_bytes()


def _reached(pair: Pair, header: Path) -> bytes:
    root = packages.kernel_root(pair.kernel)
    work, log = root / "reached", LAB / f"reached-{pair.kernel.release}.log"
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(REPOSITORY / "lab/reached", work)
    try:
        shutil.copy(header, work)
        _prepare(pair, root)
        with log.open("wb") as said:
            headers, common = _headers(pair)
            words = (f"-C{common}", f"O={headers}", f"CC={pair.kernel.compiler}", "M=/reached")
            if _inside(root, "make", *words, "KBUILD_MODPOST_WARN=1", "modules", said=said) != 0:
                raise LabError(f"lab/reached does not compile for {pair.kernel.release}: {log}")
        return (work / REACHED).read_bytes()
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _headers(pair: Pair) -> tuple[str, str]:
    """The kernel's headers, and those that it shares with its other flavours, as folders of the root."""
    headers = f"/usr/src/{pair.kernel.headers}"
    return headers, headers.removesuffix("amd64") + "common"


def _build(pair: Pair, sources: Path, root: Path, out: Path) -> None:
    work = root / "nvidia"
    log = LAB / f"modules-{pair.name}.log"
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(sources, work, symlinks=True)
    try:
        _prepare(pair, root)
        headers, common = _headers(pair)
        words = (
            f"KERNEL_UNAME={pair.kernel.release}",
            f"SYSSRC={common}",
            f"SYSOUT={headers}",
            "IGNORE_CC_MISMATCH=1",
            "NV_KERNEL_MODULES=nvidia nvidia-uvm",
            f"CC={pair.kernel.compiler}",
            f"-j{os.cpu_count()}",
        )
        stripped = ("strip", "--strip-debug", *(f"/nvidia/{name}" for name in MODULES))
        with log.open("wb") as said:
            well = all(
                _inside(root, *step, said=said) == 0
                for step in (("make", "-C", "/nvidia", *words, "modules"), stripped)
            )
        if not well:
            lines = log.read_text(errors="replace").splitlines()
            wrong = " | ".join([line for line in lines if " error: " in line][:LOG_LINES])
            raise LabError(
                f"{pair.name} does not compile ({log}): {wrong}; choose another pair in lab/pairs.py"
            )
        for name in MODULES:
            shutil.copy(work / name, out)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _prepare(pair: Pair, root: Path) -> None:
    """What the packages' own scripts would have done, had they been configured."""
    for name, target in (("sh", "/bin/bash"), ("awk", "mawk"), ("cc", pair.kernel.compiler)):
        link = root / ("bin" if name == "sh" else "usr/bin") / name
        if not link.is_symlink() and not link.exists():
            link.symlink_to(target)
    subprocess.run(["/usr/sbin/ldconfig", "-r", root], check=True)


def _inside(root: Path, *words: str, said: IO[bytes]) -> int:
    done = subprocess.run(
        ["chroot", root, *words],
        stdin=subprocess.DEVNULL,
        stdout=said,
        stderr=subprocess.STDOUT,
        env={"PATH": "/usr/bin:/usr/sbin:/bin:/sbin", "LC_ALL": "C"},
        check=False,
    )
    return done.returncode
