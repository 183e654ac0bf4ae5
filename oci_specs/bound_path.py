"""The path of a socket of ours, which root can take away from whoever is bound to it."""

import os
import socket
import stat
from contextlib import suppress

# How often whoever serves a socket looks whether its path is still its own.
LOOK_SECONDS = 1.0


class BoundPath:
    """The file that a socket is bound to."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._at = _place(os.stat(path))

    def is_gone(self) -> bool:
        """Somebody has removed it, or put another file there."""
        try:
            found = os.stat(self._path)
        except OSError:
            return True
        return not stat.S_ISSOCK(found.st_mode) or _place(found) != self._at


def bind(made: socket.socket, path: str) -> BoundPath:
    """For root alone, in place of an earlier socket."""
    with suppress(FileNotFoundError):
        os.unlink(path)
    made.bind(path)
    os.chmod(path, 0o600)
    return BoundPath(path)


def _place(found: os.stat_result) -> tuple[int, int, int]:
    """File systems give an inode's number to the next file at once."""
    return found.st_dev, found.st_ino, found.st_mtime_ns
