"""Carrying a plan out: all of it, or nothing.

Where power is cut each file is as before or as planned, those of earlier changes are as planned, and the next
run takes away what was on its way.
"""

import fcntl
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from install import folders
from install.change import BACKUP_SUFFIX, Change, Plan
from oci_specs.refusal import Refusal

DIR_MODE = 0o755
# Until it is known who may read it.
STAGED_MODE = 0o600
# No engine reads a file of such a name, but CRI-O: see Change.aside.
STAGED_SUFFIX = ".mgpu-new"


def apply(plan: Plan) -> None:
    """Make the changes; on failure take them back and raise a Refusal with the cause."""
    with _said_in_one_line(), _staged(plan.changes) as staged:
        done: list[Change] = []
        try:
            for change in plan.changes:
                _commit(change, staged.get(change.path))
                done.append(change)
        except OSError:
            for change in reversed(done):
                _take_back(change)
            raise


def write_below(plan: Plan, folder: Path) -> list[Path]:
    """Write the plan's files below `folder` under their whole paths; the host stays as it is."""
    written = []
    with _said_in_one_line():
        for change in plan.changes:
            if change.after is None or change.path.suffix == BACKUP_SUFFIX:
                continue
            path = folder / change.path.relative_to("/")
            path.parent.mkdir(mode=DIR_MODE, parents=True, exist_ok=True)
            fresh = _beside(path)
            fresh.unlink(missing_ok=True)
            _write(fresh, change)
            _dress(fresh, change)
            fresh.rename(path)
            written.append(path)
    return written


@contextmanager
def _said_in_one_line() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Refusal(
            "cannot-write",
            f"{error.filename2 or error.filename or 'a file'}: {error.strerror or error}",
            "see that root may write there (a read-only file system, chattr +i); nothing was changed",
        ) from error


@contextmanager
def _staged(changes: Iterable[Change]) -> Iterator[dict[Path, Path]]:
    """Fresh files beside those they will replace; unused ones and empty folders go at the end."""
    staged: dict[Path, Path] = {}
    made: list[Path] = []
    planned = list(changes)
    try:
        for change in planned:
            if change.after is not None:
                made += _make_folders(folders.place(change).parent)
        with _alone({folders.place(change).parent for change in planned}):
            for change in planned:
                fresh = _fresh_name(change)
                # Of a run that was cut off.
                fresh.unlink(missing_ok=True)
                if change.after is not None:
                    staged[change.path] = fresh
                    _write(fresh, change)
            yield staged
    finally:
        for fresh in staged.values():
            with suppress(OSError):
                fresh.unlink()
        for folder in reversed(made):
            # Not empty: what was written is there to stay.
            with suppress(OSError):
                folder.rmdir()


def _make_folders(folder: Path) -> list[Path]:
    missing = folders.missing(folder)
    for each in missing:
        each.mkdir(mode=DIR_MODE)
        _sync(each.parent)
    return missing


@contextmanager
def _alone(places: Iterable[Path]) -> Iterator[None]:
    """Two that write into the same folder do so one after the other."""
    with ExitStack() as stack:
        for place in sorted(places):
            with suppress(FileNotFoundError):
                fcntl.flock(stack.enter_context(_opened(place)), fcntl.LOCK_EX)
        yield


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _sync(folder: Path) -> None:
    with _opened(folder) as descriptor:
        os.fsync(descriptor)


def _fresh_name(change: Change) -> Path:
    place = folders.place(change)
    # What is elsewhere, behind a link, may be on another file system.
    if change.aside is not None and place == change.path:
        return _beside(change.aside / place.name)
    return _beside(place)


def _beside(place: Path) -> Path:
    return place.with_name(f".{place.name}{STAGED_SUFFIX}")


def _write(fresh: Path, change: Change) -> None:
    assert change.after is not None
    if change.link:
        fresh.symlink_to(os.fsdecode(change.after))
        return
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, STAGED_MODE)
    with open(descriptor, "wb") as file:
        file.write(change.after)
        file.flush()
        os.fsync(descriptor)


def _commit(change: Change, fresh: Path | None) -> None:
    """It stays, and before any later one."""
    place = change.path if fresh is None else folders.place(change)
    if fresh is None:
        place.unlink(missing_ok=True)
    else:
        _dress(fresh, change)
        fresh.rename(place)
    with suppress(FileNotFoundError):
        _sync(place.parent)


def _dress(fresh: Path, change: Change) -> None:
    """Give it mode, owner and labels of the file that it replaces or is like; never its times."""
    if change.link:
        return
    model = change.path if change.before is not None else change.like
    if model is None or not model.exists():
        fresh.chmod(change.mode)
        return
    was = model.stat()
    os.chown(fresh, was.st_uid, was.st_gid)
    shutil.copystat(model, fresh)
    os.utime(fresh)


def _take_back(change: Change) -> None:
    with suppress(OSError):
        if change.before is None:
            folders.place(change).unlink(missing_ok=True)
        else:
            fresh = _fresh_name(change)
            _write(fresh, replace(change, after=change.before))
            _commit(change, fresh)
