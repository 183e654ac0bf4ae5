"""A program under our filter whose calls we see: what it asks for, what it makes, and, if wanted, made in its
place.

The experiments' own, small supervisor; the product's mediator is not used, so that each shows what the other
got wrong.
"""

import builtins
import ctypes
import errno
import fcntl
import os
import select
import socket
import struct
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from oci_specs.seccomp.notified import NOTIFY_CUBES, REFUSED_CUBES
from tests.gpu import rm
from tests.gpu.backend import Backend
from tests.support.rm_numbers import UVM_INITIALIZE

NOTIFICATION = struct.Struct("<QIIiIQ6Q")
ANSWER = struct.Struct("<QqiI")
RECEIVE, SEND, SET_FLAGS = 0xC0502100, 0xC0182101, 0x40082104
CONTINUE, SYNC_WAKE_UP = 1, 1
LIBC = ctypes.CDLL(None, use_errno=True)
PIDFD_GETFD = 438


@dataclass
class Made:
    """An object as its allocation said. engine, userd and flags: of groups and channels."""

    client: int
    parent: int
    handle: int
    class_id: int
    bytes: int = 0
    engine: int = 0
    flags: int = 0
    userd: int = 0
    userd_offset: int = 0
    params: builtins.bytes = b""


@dataclass(kw_only=True)
class How:
    """behalf: allocations by class are made by us on the program's own file. cap_bytes: 0x51 beyond that, and
    the memory view shows it. keep_admin: our thread keeps CAP_SYS_ADMIN. refuse: of a kind ("escape",
    "class", "control", "uvm") and a number, whether such a call is refused, as the product would, before the
    driver sees it.
    """

    behalf: bool = False
    cap_bytes: int = 0
    used_bytes: int = 0
    keep_admin: bool = False
    refuse: Callable[[str, int], bool] | None = None


@dataclass
class Census:
    """What was asked, by kind: escapes, classes, controls, indices of the memory view, nvidia-uvm's
    commands."""

    seen: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    uvm: list[str] = field(default_factory=list)
    clients_by_file: dict[str, set[int]] = field(default_factory=dict)
    serve_us: list[float] = field(default_factory=list)


class Supervised:
    """A running program. Use as a context; it is killed at the end."""

    def __init__(
        self,
        backend: Backend,
        argv: Sequence[str],
        how: How | None = None,
        env: dict[str, str] | None = None,
    ) -> None:
        self.backend = backend
        self.how = how or How()
        self.census = Census()
        self.objects: dict[tuple[int, int], Made] = {}
        self.used_bytes = 0
        self.refused = 0
        self._control: dict[int, int] = {}
        self._lock = threading.Lock()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        # What the filter itself would refuse is seen where it is to be refused.
        seen = NOTIFY_CUBES + (REFUSED_CUBES if self.how.refuse else ())
        cubes = [f"{mask:x}:{datum:x}" for mask, datum in seen]
        command = [backend.program("launch"), str(theirs.fileno()), *cubes, "--", *argv]
        self.process = subprocess.Popen(
            backend.in_namespace(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            pass_fds=[theirs.fileno()],
            env={**os.environ, **backend.environment(), **(env or {})},
        )
        theirs.close()
        _, fds, _, _ = socket.recv_fds(ours, 1, 1)
        ours.close()
        if not fds:
            raise rm.RmError(f"{argv[0]} did not start: {self.output()}", -errno.ENOEXEC)
        self._listener = fds[0]
        # By value; kernels before 6.6 do not have it.
        LIBC.ioctl(self._listener, ctypes.c_ulong(SET_FLAGS), ctypes.c_ulong(SYNC_WAKE_UP))
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def __enter__(self) -> "Supervised":
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)
        self._thread.join(10)
        self.close_files()

    def close_files(self) -> None:
        """Lets go of the program's control files: the driver frees what was made by one with its last
        close."""
        with self._lock:
            for fd in self._control.values():
                os.close(fd)
            self._control.clear()

    def output(self, timeout_s: float = 20) -> str:
        """What it said, once it has ended by itself."""
        try:
            said, _ = self.process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            said, _ = self.process.communicate()
            said += "\n[killed: it did not end]"
        return said

    def file_of(self, client: int) -> int:
        """Our duplicate of the control file on which the client was made; -1: not known."""
        with self._lock:
            return self._control.get(client, -1)

    def by_class(self, *classes: int) -> list[Made]:
        with self._lock:
            return [one for one in self.objects.values() if one.class_id in classes]

    # The notifications.

    def _serve(self) -> None:
        if not self.how.keep_admin:
            self.backend.drop_admin()
        poll = select.poll()
        poll.register(self._listener, select.POLLIN)
        while True:
            [(_, events)] = poll.poll() or [(0, select.POLLHUP)]
            if not events & select.POLLIN:
                break
            note = bytearray(NOTIFICATION.size)
            try:
                fcntl.ioctl(self._listener, RECEIVE, note)
            except OSError:
                continue
            number, tid, _, _, _, _, *args = NOTIFICATION.unpack(note)
            begin = time.monotonic_ns()
            try:
                result, flags = self._answer(
                    number, tid, args[0] & 0xFFFFFFFF, args[1] & 0xFFFFFFFF, args[2]
                )
            except (OSError, struct.error):
                result, flags = 0, CONTINUE
            self.census.serve_us.append((time.monotonic_ns() - begin) / 1000)
            try:
                fcntl.ioctl(self._listener, SEND, ANSWER.pack(number, 0, -result, flags))
            except OSError:
                continue  # its thread is gone, or was interrupted
        os.close(self._listener)

    def _answer(self, note: int, tid: int, fd: int, cmd: int, at: int) -> tuple[int, int]:
        """(errno, flags)."""
        size, number = cmd >> 16 & 0x3FFF, cmd & 0xFF
        if cmd >> 8 & 0xFF != ord("F"):
            self.census.seen[f"uvm {cmd:#x}"] += 1
            self.census.uvm.append(f"thread {tid} file {fd} command {cmd:#x}{_flags(tid, cmd, at)}")
            # Other files of Linux take the same numbers.
            its_file = os.readlink(f"/proc/{tid}/fd/{fd}").endswith("nvidia-uvm")
            return (errno.EPERM, 0) if its_file and self._refuses("uvm", cmd) else (0, CONTINUE)
        self.census.seen[f"escape {number:#x}/{size}"] += 1
        if self._refuses("escape", cmd):
            return errno.EPERM, 0
        self.backend.adopt(self._listener, note, tid, fd)
        memory = os.open(f"/proc/{tid}/mem", os.O_RDWR | os.O_CLOEXEC)
        try:
            outer = _read(memory, at, size)
            before = bytes(outer)
            done: int | None = None
            if number == rm.ALLOC:
                done = self._alloc(tid, fd, outer, memory)
            elif number == rm.CONTROL:
                done = self._control_call(tid, fd, outer, memory)
            flags = 0
            if done is None:
                done, flags = self.backend.continue_call(
                    self._listener, note, tid, fd, outer, number, memory
                )
                if number == rm.ALLOC and not flags and not done:
                    self._made_by_itself(outer, memory)
            if outer != before:
                _write(memory, at, outer)
            return done, flags
        finally:
            os.close(memory)

    def _made_by_itself(self, outer: bytearray, memory: int) -> None:
        """The handle that RM chose is known where we see the answer."""
        client, parent, handle, class_id, pointer = struct.unpack_from("<IIIIQ", outer)
        length = rm.CLASS_BYTES.get(class_id, 0)
        params = _read(memory, pointer, length) if pointer and length else bytearray()
        self._add(_described(client, parent, handle, class_id, params))

    def _alloc(self, tid: int, fd: int, outer: bytearray, memory: int) -> int | None:
        client, parent, handle, class_id, pointer = struct.unpack_from("<IIIIQ", outer)
        wide = len(outer) == 48
        self.census.seen[f"class {class_id:#x}"] += 1
        if wide and struct.unpack_from("<Q", outer, 0x18)[0]:
            self.census.seen["rights asked"] += 1
        if self._refuses("class", class_id):
            struct.pack_into("<I", outer, 0x28 if wide else 0x1C, rm.INVALID_CLASS)
            return 0
        length = rm.CLASS_BYTES.get(class_id, 0)
        params = _read(memory, pointer, length) if pointer and length else bytearray()
        made = _described(client, parent, handle, class_id, params)
        charged = class_id == rm.MEMORY and self.how.cap_bytes
        if charged and self.how.used_bytes + self.used_bytes + made.bytes > self.how.cap_bytes:
            self.refused += 1
            struct.pack_into("<I", outer, 0x28 if wide else 0x1C, rm.NO_MEMORY)
            return 0
        self._note_file(tid, fd, client)
        if not (charged or (self.how.behalf and length)):
            if handle:
                self._add(made)
            return None
        call = rm.alloc(client, parent, handle, class_id, bytes(params))
        error = self.backend.execute(tid, fd, call)
        status = call.u32(0x28)
        struct.pack_into("<I", outer, 8, call.u32(8))
        struct.pack_into("<I", outer, 0x28 if wide else 0x1C, status)
        if error or status:
            self.census.failed[f"class {class_id:#x}: {error or hex(status)}"] += 1
            return error
        _write(memory, pointer, call.params)
        made = _described(client, parent, call.u32(8), class_id, call.params)
        self._add(made)
        if charged:
            self.used_bytes += made.bytes
        return 0

    def _control_call(self, tid: int, fd: int, outer: bytearray, memory: int) -> int | None:
        client, thing, cmd, _, pointer, length, _ = struct.unpack_from("<IIIIQII", outer)
        self.census.seen[f"control {cmd:#x}/{length}"] += 1
        self._note_file(tid, fd, client)
        if self._refuses("control", cmd):
            struct.pack_into("<I", outer, 0x1C, rm.NOT_SUPPORTED)
            return 0
        if cmd != rm.FB_INFO or length > 4096:
            return None
        params = _read(memory, pointer, length)
        for i in range(min(struct.unpack_from("<I", params)[0], (length - 4) // 8)):
            self.census.seen[f"fb index {struct.unpack_from('<I', params, 4 + 8 * i)[0]:#x}"] += 1
        if not self.how.cap_bytes:
            return None
        call = rm.control(client, thing, cmd, bytes(params))
        error = self.backend.execute(tid, fd, call)
        struct.pack_into("<I", outer, 0x1C, call.u32(0x1C))
        if not error and not call.u32(0x1C):
            self._cap_view(call.params)
            _write(memory, pointer, call.params)
        return error

    def _cap_view(self, params: bytearray) -> None:
        cap = self.how.cap_bytes >> 10
        free = max(0, cap - (self.how.used_bytes + self.used_bytes >> 10))
        limits = {7: cap, 8: cap, 9: cap, 0xA: cap, 0x20: cap, 0x12: free, 0x16: free}
        for i in range(min(struct.unpack_from("<I", params)[0], (len(params) - 4) // 8)):
            index, kib = struct.unpack_from("<II", params, 4 + 8 * i)
            struct.pack_into("<I", params, 8 + 8 * i, min(kib, limits.get(index, kib)))

    def _refuses(self, kind: str, number: int) -> bool:
        refused = self.how.refuse is not None and self.how.refuse(kind, number)
        if refused:
            self.census.refused[f"{kind} {number:#x}"] += 1
        return refused

    def _add(self, made: Made) -> None:
        with self._lock:
            self.objects[made.client, made.handle] = made

    def _note_file(self, tid: int, fd: int, client: int) -> None:
        name = os.readlink(f"/proc/{tid}/fd/{fd}")
        self.census.clients_by_file.setdefault(f"{name} fd {fd}", set()).add(client)
        with self._lock:
            if client and client not in self._control:
                self._control[client] = fetch(tid, fd)


def _described(client: int, parent: int, handle: int, class_id: int, params: bytearray) -> Made:
    made = Made(client, parent, handle, class_id, params=bytes(params))
    if class_id == rm.MEMORY and len(params) >= 0x48:
        made.bytes = struct.unpack_from("<Q", params, 0x40)[0]
    elif class_id == rm.GROUP and params:
        made.engine = struct.unpack_from("<I", params, 12)[0]
    elif class_id in rm.CHANNELS and params:
        made.flags, made.userd = struct.unpack_from("<I8xI", params, 0x14)
        made.userd_offset, made.engine = struct.unpack_from("<Q56xI", params, 0x40)
    return made


def fetch(tid: int, fd: int) -> int:
    """A duplicate of another process's descriptor: the same open file. OSError."""
    with open(f"/proc/{tid}/status") as status:
        [tgid] = [int(line.split()[1]) for line in status if line.startswith("Tgid:")]
    pidfd = os.pidfd_open(tgid)
    try:
        got = LIBC.syscall(PIDFD_GETFD, pidfd, fd, 0)
        if got < 0:
            raise OSError(ctypes.get_errno(), "pidfd_getfd")
        return int(got)
    finally:
        os.close(pidfd)


def _flags(tid: int, cmd: int, at: int) -> str:
    """Of UVM_INITIALIZE: what its caller wants of the file."""
    if cmd != UVM_INITIALIZE:
        return ""
    with open(f"/proc/{tid}/mem", "rb", buffering=0) as memory:
        memory.seek(at)
        return f" flags {int.from_bytes(memory.read(8), 'little'):#x}"


def _read(memory: int, at: int, size: int) -> bytearray:
    return bytearray(os.pread(memory, size, at))


def _write(memory: int, at: int, data: bytes | bytearray) -> None:
    os.pwrite(memory, data, at)
