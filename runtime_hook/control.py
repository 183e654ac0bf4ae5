"""Client of mgpud's control socket: one JSON request in a packet, one reply."""

from __future__ import annotations

# What the module socket wraps: that would load enum, selectors and collections for one packet each way.
import _socket
import errno
import time

from oci_specs.refusal import Refusal
from runtime_hook import quick_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

VERSION = 1
MAX_BYTES = 128 * 1024
# A list of every container of a full node: 32 cards of 16 tenants with 64 processes each stay below it.
REPLY_MAX_BYTES = 4 * 1024 * 1024
TIMEOUT_SECONDS = 10
# A mgpud that was killed is followed by the next within a fraction of a second; several may be, one after
# the other.
RESTART_SECONDS = 10
_LOOK_SECONDS = 0.05
_NOT_RUNNING = "mgpud-not-running"


def call(path: str, verb: str, *, timeout_seconds: int = TIMEOUT_SECONDS, **members: Any) -> dict[str, Any]:
    """mgpud's reply to verb. Refusal if it says no, does not run, or does not answer within the time-out.

    A mgpud that is being started again is waited for, and asked once more if it was killed before it
    answered: no verb does anything the second time. path: the socket; members: those of the request besides
    version and verb (schemas/control.schema.json).
    """
    request = quick_json.dumps({"version": VERSION, "verb": verb, **members}).encode("ascii")
    if len(request) > MAX_BYTES:
        raise Refusal(
            "request-too-large",
            f"{verb} takes {len(request)} bytes for mgpud, at most {MAX_BYTES}",
            "give the container fewer or shorter annotations and MGPU_ or NVIDIA_ variables",
        )
    return _accepted(_exchange(path, request, timeout_seconds), path)


def _exchange(path: str, request: bytes, timeout_seconds: int) -> bytes:
    deadline = time.monotonic() + min(RESTART_SECONDS, timeout_seconds)
    while True:
        try:
            return _exchange_once(path, request, timeout_seconds)
        except Refusal as refusal:
            if refusal.code != _NOT_RUNNING or time.monotonic() >= deadline or not _is_restarting(path):
                raise
        time.sleep(_LOOK_SECONDS)


def _is_restarting(path: str) -> bool:
    """Whether the holder lives, which has mgpud started again.

    It is asked for a kind of socket that its own is not: the kernel says so where there is one, and the
    holder sees nothing of it.
    """
    probe = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    try:
        probe.connect(path.rpartition("/")[0] + "/seccomp.sock")
    except OSError as error:
        return error.errno == errno.EPROTOTYPE
    finally:
        probe.close()
    return False


def _exchange_once(path: str, request: bytes, timeout_seconds: int) -> bytes:
    # struct timeval of a 64-bit kernel. Time-outs of the socket itself, not settimeout: that would make a
    # connect to a full backlog fail at once instead of waiting for room.
    limit = timeout_seconds.to_bytes(8, "little") + bytes(8)
    try:
        mgpud = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
        try:
            mgpud.setsockopt(_socket.SOL_SOCKET, _socket.SO_SNDTIMEO, limit)
            mgpud.setsockopt(_socket.SOL_SOCKET, _socket.SO_RCVTIMEO, limit)
            mgpud.connect(path)
            mgpud.send(request)
            reply = mgpud.recv(REPLY_MAX_BYTES + 1)
        finally:
            mgpud.close()
    except BlockingIOError as error:
        raise Refusal(
            "mgpud-not-answering",
            f"mgpud did not answer on {path} within {timeout_seconds} s",
            "see what mgpud logs, then try again",
        ) from error
    except OSError as error:
        if error.errno == errno.EACCES:
            raise Refusal(
                "rootless",
                f"only engines that root runs get a GPU, and this one may not open {path}",
                "run it as root; podman run --userns=auto keeps root's rights out of the container",
            ) from error
        # podman takes the kernel's words for a program of the image that was not found, and says so.
        gone = isinstance(error, FileNotFoundError)
        raise _not_running(path, "no such socket" if gone else error.strerror or str(error)) from error
    if not reply:
        raise _not_running(path, "Connection closed")
    return reply


def _not_running(path: str, why: str) -> Refusal:
    return Refusal(
        _NOT_RUNNING,
        f"mgpud is not running: no answer on {path} ({why})",
        "start mgpud, then try again",
    )


def _accepted(data: bytes, path: str) -> dict[str, Any]:
    try:
        reply: Mapping[str, Any] | object = (
            quick_json.loads(data.decode()) if len(data) <= REPLY_MAX_BYTES else None
        )
    except (ValueError, RecursionError):
        reply = None
    if not isinstance(reply, dict) or reply.get("version") != VERSION:
        raise bad_reply(f"{len(data)} bytes that are no reply of version {VERSION}", path)
    if reply.get("ok") is not True:
        error = reply.get("error")
        if not isinstance(error, dict):
            raise bad_reply("a refusal without a reason", path)
        raise Refusal.from_error(error)
    return reply


def bad_reply(what: str, path: str) -> Refusal:
    """The refusal for an answer that is none."""
    return Refusal(
        "bad-reply", f"mgpud on {path} answered with {what}", "install one version of mgpu and restart mgpud"
    )
