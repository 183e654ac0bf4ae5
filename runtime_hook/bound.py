"""Whether a program has a socket, without its hearing of the question."""

import errno
import os
import socket
from pathlib import Path


def is_bound(path: Path) -> bool:
    """Whether a program has this stream or packet socket: asked by a type that it refuses (unix(7),
    EPROTOTYPE). It is the socket of this file, whatever other mounts have under the same name.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(os.fspath(path))
        except OSError as error:
            return error.errno == errno.EPROTOTYPE
    return True
