"""mgpu below /opt/mgpu of a node: a link to the folder of one version, changed in one step."""

import fcntl
import hashlib
import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from oci_specs.refusal import Refusal

# Where the programs look for their libraries (tools/node_image.py).
PLACE = Path("/opt/mgpu")
_FOLDERS = "mgpu-"
_LOCK = ".mgpu.lock"


def install(source: Path, host: Path, *, keep: bool = False) -> bool:
    """Copy the folder `source` to PLACE below `host`; whether anything was changed.

    keep: leave what is there, whatever its version. Running programs keep their version's folder, which is
    removed two upgrades later. Refusal when the node takes no files.
    """
    opt = host / PLACE.parent.relative_to("/")
    link = host / PLACE.relative_to("/")
    try:
        opt.mkdir(parents=True, exist_ok=True)
        with _alone(opt):
            _refuse_foreign(link)
            if keep and link.is_symlink() and link.exists():
                return False
            folder = _FOLDERS + _digest(source)
            if link.is_symlink() and os.readlink(link) == folder and (opt / folder).is_dir():
                return False
            before = os.readlink(link) if link.is_symlink() else None
            _copy(source, opt / folder)
            _point(link, folder)
            _tidy(opt, {folder, before})
            return True
    except OSError as error:
        raise Refusal(
            "not-copied",
            f"mgpu cannot be put at {PLACE} of the node: {error.strerror or error}",
            "give the node a writable /opt with 300 MiB free",
        ) from error


def configure(wanted: Path, there: Path, node: str) -> bool:
    """Make `there` what `wanted` is, or NODE.toml beside it, in one step; whether it was anything else.
    Nothing where neither is there. Refusal when the node takes no files.
    """
    own = wanted.with_name(f"{node}.toml")
    try:
        text = (own if node and own.exists() else wanted).read_bytes()
    except FileNotFoundError:
        return False
    try:
        if there.exists() and there.read_bytes() == text:
            return False
        new = there.with_name(f".{there.name}.new")
        new.write_bytes(text)
        new.replace(there)
    except OSError as error:
        raise Refusal(
            "not-copied",
            f"{there.name} cannot be put on the node: {error.strerror}",
            "give the node room in /run",
        ) from error
    return True


def is_there(host: Path) -> bool:
    """Whether `install` has been here. Refusal where another installation is."""
    link = host / PLACE.relative_to("/")
    _refuse_foreign(link)
    return link.is_symlink()


def remove(host: Path) -> None:
    """Take away what `install` has put on the node."""
    opt = host / PLACE.parent.relative_to("/")
    with _alone(opt):
        (host / PLACE.relative_to("/")).unlink(missing_ok=True)
        _tidy(opt, set())
    (opt / _LOCK).unlink(missing_ok=True)


def _refuse_foreign(link: Path) -> None:
    if link.exists() and not link.is_symlink():
        raise Refusal(
            "other-installation",
            f"{PLACE} of the node is a folder that this did not make",
            "remove it, or leave the node to that installation: take the label mgpu.dev/node off",
        )


@contextmanager
def _alone(opt: Path) -> Generator[None]:
    """Two pods of one node may begin at the same instant."""
    with (opt / _LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _digest(source: Path) -> str:
    """Of every file's name, mode and content: two builds of one version are two folders."""
    found = hashlib.sha256()
    for path in sorted(source.rglob("*")):
        if "__pycache__" in path.parts:
            continue
        found.update(os.fsencode(path.relative_to(source)) + b"\0")
        if path.is_symlink():
            found.update(os.fsencode(os.readlink(path)))
        elif path.is_file():
            found.update(path.stat().st_mode.to_bytes(4, "little"))
            with path.open("rb") as file:
                found.update(hashlib.file_digest(file, "sha256").digest())
    return found.hexdigest()[:16]


def _copy(source: Path, folder: Path) -> None:
    """Whole or not at all: what an earlier try left unfinished is made anew."""
    unfinished = folder.with_name(f".{folder.name}")
    for left in (unfinished, folder):
        shutil.rmtree(left, ignore_errors=True)
    shutil.copytree(source, unfinished, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    os.sync()
    unfinished.rename(folder)


def _point(link: Path, folder: str) -> None:
    new = link.with_name(f".{link.name}.new")
    new.unlink(missing_ok=True)
    new.symlink_to(folder)
    new.replace(link)


def _tidy(opt: Path, wanted: set[str | None]) -> None:
    for folder in opt.glob(f"{_FOLDERS}*"):
        if folder.is_dir() and folder.name not in wanted:
            shutil.rmtree(folder, ignore_errors=True)
