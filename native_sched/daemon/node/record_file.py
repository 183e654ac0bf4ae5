"""Documents that one mgpud leaves for the next: written whole or not at all, and told when they are not
whole.

A file is one JSON object: `format`, `kind`, `boot` (the machine's boot that it is of), `crc32` of the body's
text, and `body`. It is written beside its name and renamed, so that a kill leaves the old one or
the new one. Nothing is synced: processes, which the documents are about, do not outlive the machine either.
"""

import errno
import json
import os
import zlib
from functools import cache
from typing import Any

FORMAT = 1
# Beside a document while it is written; what is found of it was never one.
UNFINISHED = ".new"
# mgpud's documents are far smaller; a file that large is none of them.
MAX_BYTES = 1 << 20


class Unreadable(ValueError):
    """A document that was not written so."""


@cache
def boot_id() -> str:
    """Of the running kernel; processes are known by pid and start time only within one."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


def _text(body: Any) -> str:
    return json.dumps(body, sort_keys=True, separators=(",", ":"))


def _sum(text: str) -> str:
    return f"{zlib.crc32(text.encode('ascii')):08x}"


def encode(kind: str, body: Any) -> bytes:
    text = _text(body)
    head = _text({"format": FORMAT, "kind": kind, "boot": boot_id(), "crc32": _sum(text)})
    return f'{head[:-1]},"body":{text}}}\n'.encode("ascii")


def decode(kind: str, data: bytes) -> tuple[str, Any]:
    """(boot, body) of a document; Unreadable, with the fault, for another kind or format."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Unreadable("not JSON") from error
    if not isinstance(found, dict) or found.get("kind") != kind:
        raise Unreadable(f"no {kind}")
    if found.get("format") != FORMAT:
        raise Unreadable(f"of another format than {FORMAT}")
    if found.get("crc32") != _sum(_text(found.get("body"))):
        raise Unreadable("its checksum is wrong")
    return str(found.get("boot")), found["body"]


def read(path: str) -> bytes:
    """OSError, or Unreadable for what is no plain file or too large."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        data = bytearray()
        while len(data) <= MAX_BYTES:
            piece = os.read(fd, MAX_BYTES + 1 - len(data))
            if not piece:
                return bytes(data)
            data += piece
        raise Unreadable("too large")
    except IsADirectoryError as error:
        raise Unreadable("a folder") from error
    finally:
        os.close(fd)


class Prepared:
    """A document that is written but not in place yet: putting it in place takes no more room."""

    def __init__(self, path: str, data: bytes) -> None:
        """OSError, with nothing changed, when it cannot be written."""
        self._path = path
        fd = os.open(
            path + UNFINISHED, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
        )
        try:
            _write(fd, data)
        except OSError:
            self.abandon()
            raise
        finally:
            os.close(fd)

    def commit(self) -> None:
        """OSError, with nothing changed, when it cannot be renamed."""
        try:
            os.rename(self._path + UNFINISHED, self._path)
        except OSError:
            self.abandon()
            raise

    def abandon(self) -> None:
        try:
            os.unlink(self._path + UNFINISHED)
        except OSError:
            pass


def _write(fd: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        count = os.write(fd, left)
        if not count:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        left = left[count:]
