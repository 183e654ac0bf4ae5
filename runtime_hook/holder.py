"""What the holder reports of itself to any client."""

import socket
import struct
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from oci_specs.refusal import Refusal

# native_sched/holder/protocol.h: struct holder_head and what follows it in struct holder_status.
_HEAD = struct.Struct("=IIQ")
_REST = struct.Struct("=6I")
_STATUS = 8
_UCRED = struct.Struct("=iII")
TIMEOUT_S = 5.0


class HolderStatus(NamedTuple):
    """pid: the holder's; replaced: how often it became another program; refused: how often it did not.

    mgpud_pid: 0 when no mgpud serves; starting: how many do not serve yet.
    """

    pid: int
    replaced: int
    mgpud_pid: int
    starts_mgpud: bool
    listeners: int
    killed: int
    starting: int
    refused: int


def status(path: Path, timeout_s: float = TIMEOUT_S) -> HolderStatus:
    """Refusal when no holder answers on that socket."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as link:
            link.settimeout(timeout_s)
            link.connect(str(path))
            pid = _UCRED.unpack(link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))[0]
            reply = b""
            with suppress(BrokenPipeError, ConnectionResetError):
                link.send(_HEAD.pack(_STATUS, 0, 0))
                reply = link.recv(_HEAD.size + _REST.size)
    except OSError as error:
        raise Refusal(
            "no-holder",
            f"mgpu is not running: no answer on {path} ({error.strerror or error})",
            "start it with mgpu up or systemctl start mgpud, or say where it runs with --root or MGPU_ROOT",
        ) from error
    if len(reply) != _HEAD.size + _REST.size or _HEAD.unpack_from(reply)[0] != _STATUS:
        raise Refusal(
            "holder-version",
            f"the holder (pid {pid}) is of another version of mgpu, which does not say what it does",
            "stop mgpu when no container needs it, and start it again",
        )
    _kind, _protocol, replaced = _HEAD.unpack_from(reply)
    pid_of_mgpud, starts, *rest = _REST.unpack_from(reply, _HEAD.size)
    return HolderStatus(pid, replaced, pid_of_mgpud, bool(starts), *rest)
