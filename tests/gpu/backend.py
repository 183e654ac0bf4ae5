"""Where calls end: NVIDIA's driver, or a simulated card in its place, so that all but the card is tried
without one.
"""

import ctypes
import os
import re
import shutil
import socket
import stat
import struct
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from oci_specs import paths
from tests.gpu import rm

ADDFD = struct.Struct("<QIIII")
ADD_FD, SETFD, CONTINUE = 0x40182103, 1, 1
CAP_SYS_ADMIN, CAP_SYS_NICE, CAP_PERFMON = 21, 23, 38
PROGRAMS = Path(sys.prefix) / "programs"
SIMULATED_CARDS = 2
OPEN, IOCTL, STATUS = 1, 2, 5
CTL, CARD = 0, 1


class Backend(Protocol):
    """name: "nvidia" or "sim". fds are the caller's where a tid stands beside them, else ours."""

    name: str

    def environment(self) -> dict[str, str]: ...
    def in_namespace(self, argv: Sequence[str]) -> list[str]: ...
    def program(self, name: str) -> str: ...
    def drop_admin(self) -> None: ...
    def adopt(self, listener: int, note: int, tid: int, fd: int) -> None:
        """Before a call is looked at."""

    def continue_call(
        self, listener: int, note: int, tid: int, fd: int, outer: bytearray, number: int, memory: int
    ) -> tuple[int, int]:
        """(errno, flags) of the answer to a call that its caller is to make. memory: a descriptor of the
        caller's.
        """
        ...

    def execute(self, tid: int, fd: int, call: rm.Call) -> int: ...
    def on_file(self, fd: int, call: rm.Call) -> int: ...
    def present(self) -> bool: ...
    def cards(self) -> int: ...
    def open(self, node: str) -> int:
        """A file of our own: nvidiactl, or nvidiaN."""
        ...

    def registers(self) -> tuple[int, int]:
        """A descriptor of a simulated card's registers, and the base of graphics' runlist there; -1: a real
        card's are in its PCI folder."""
        ...


def set_admin(effective: bool) -> None:
    """The three capabilities of this thread that the driver looks at."""
    libc = ctypes.CDLL(None, use_errno=True)
    head = (ctypes.c_uint32 * 2)(0x20080522, 0)
    data = (ctypes.c_uint32 * 6)()
    if libc.syscall(125, head, data):
        raise OSError(ctypes.get_errno(), "capget")
    for cap in (CAP_SYS_ADMIN, CAP_SYS_NICE, CAP_PERFMON):
        bit, word = 1 << cap % 32, 3 * (cap // 32)
        data[word] = data[word] | (data[word + 1] & bit) if effective else data[word] & ~bit
    if libc.syscall(126, head, data):
        raise OSError(ctypes.get_errno(), "capset")


class Nvidia:
    """NVIDIA's driver and the machine's own libraries."""

    name = "nvidia"

    def environment(self) -> dict[str, str]:
        return {"PYTHONPATH": ""}

    def in_namespace(self, argv: Sequence[str]) -> list[str]:
        return list(argv)

    def program(self, name: str) -> str:
        return str(PROGRAMS / name)

    def drop_admin(self) -> None:
        set_admin(False)

    def adopt(self, listener: int, note: int, tid: int, fd: int) -> None:
        return

    def continue_call(
        self, listener: int, note: int, tid: int, fd: int, outer: bytearray, number: int, memory: int
    ) -> tuple[int, int]:
        return 0, CONTINUE

    def execute(self, tid: int, fd: int, call: rm.Call) -> int:
        from tests.gpu.supervise import fetch

        ours = fetch(tid, fd)
        try:
            return rm.on_file(ours, call)
        finally:
            os.close(ours)

    def on_file(self, fd: int, call: rm.Call) -> int:
        return rm.on_file(fd, call)

    def present(self) -> bool:
        return os.path.exists("/dev/nvidiactl")

    def cards(self) -> int:
        return len([node for node in os.listdir("/dev") if re.fullmatch(r"nvidia\d+", node)])

    def open(self, node: str) -> int:
        return rm.node(node)

    def registers(self) -> tuple[int, int]:
        return -1, 0


def simulated_nodes(argv: Sequence[str]) -> list[str]:
    """The command with NVIDIA's names for null devices, over /dev in a mount namespace of its own."""
    lines = [
        "d=$(mktemp -d)",
        "mount -t tmpfs -o mode=755 none $d",
        "cp -a /dev/null /dev/zero /dev/urandom $d/",
    ]
    names = ("nvidiactl", "nvidia-uvm", *(f"nvidia{minor}" for minor in range(SIMULATED_CARDS)))
    lines += [f"mknod -m 666 $d/{name} c 1 3" for name in names]
    lines += ["mkdir $d/shm", "mount --move $d /dev", 'exec "$@"']
    return ["unshare", "--mount", "--propagation", "private", "sh", "-ec", "\n".join(lines), "sh", *argv]


class Simulated:
    """A simulated card. Programs get null devices by NVIDIA's names; the first call puts the card's file
    there.
    """

    name = "sim"

    def __init__(self, folder: Path, profile: str = "h200") -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        cards = f"{profile}:{SIMULATED_CARDS}"
        command = [paths.libexec("mgpu-simcard"), "--dir", str(folder), "--cards", cards]
        self._card = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self._card.stdout is not None
        self._card.stdout.readline()
        self._line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._line.connect(str(folder / "card.sock"))
        # Each supervised program has a thread here, and the experiment is one more.
        self._lock = threading.Lock()
        self._files: dict[int, int] = {}  # the card's name of a file, by its inode

    def close(self) -> None:
        self._line.close()
        self._card.terminate()
        self._card.wait(10)

    def environment(self) -> dict[str, str]:
        return {"PYTHONPATH": "", "LD_LIBRARY_PATH": str(Path(paths.lib("sim/libcuda.so.1")).parent)}

    def in_namespace(self, argv: Sequence[str]) -> list[str]:
        return simulated_nodes(argv)

    def program(self, name: str) -> str:
        return str(PROGRAMS / name)

    def drop_admin(self) -> None:
        set_admin(False)

    def _ask(self, head: dict[str, int], payload: bytes = b"") -> tuple[int, bytes, int, int]:
        """(errno, payload, file, descriptor or -1)."""
        order = ("op", "node", "minor", "cmd", "file", "aux", "tgid", "outer", "params", "realtime")
        request = struct.pack("<IIIIQQiIII", *(head.get(name, 0) for name in order)) + payload
        with self._lock:
            self._line.send(request)
            data, fds, _, _ = socket.recv_fds(self._line, 65536, 1)
        error, outer, params, _, file, _ = struct.unpack_from("<iIIIQQ", data)
        return error, data[32 : 32 + outer + params], file, fds[0] if fds else -1

    def _file(self, listener: int, tid: int, fd: int, note: int) -> int:
        """The card's name of the caller's file; 0 for one that is not the card's."""
        path = f"/proc/{tid}/fd/{fd}"
        found = os.stat(path)
        if stat.S_ISFIFO(found.st_mode):
            return self._files.get(found.st_ino, 0)
        name = os.readlink(path)
        if not stat.S_ISCHR(found.st_mode) or "nvidia" not in name or name.endswith("uvm"):
            return 0
        file, ours = self._opened(os.path.basename(name), _tgid(tid))
        if listener >= 0:
            _add_fd(listener, note, ours, fd)
        os.close(ours)
        return file

    def _opened(self, node: str, tgid: int) -> tuple[int, int]:
        """(the card's name of a new file of that node, a descriptor of it)."""
        minor = node.removeprefix("nvidia")
        which = {"node": CTL} if minor == "ctl" else {"node": CARD, "minor": int(minor)}
        _, _, file, ours = self._ask({"op": OPEN, "tgid": tgid, **which})
        self._files[os.fstat(ours).st_ino] = file
        return file, ours

    def open(self, node: str) -> int:
        return self._opened(node, os.getpid())[1]

    def registers(self) -> tuple[int, int]:
        _, said, _, ours = self._ask({"op": STATUS})
        # Behind the chip and the number of runlists: engines and base of the first.
        (base,) = struct.unpack_from("<I", said, 24) if struct.unpack_from("<I", said, 8)[0] else (0,)
        return ours, base

    def cards(self) -> int:
        return SIMULATED_CARDS

    def adopt(self, listener: int, note: int, tid: int, fd: int) -> None:
        """Before a call is looked at: what is behind fd is the card's from here on."""
        with suppress(OSError):
            self._file(listener, tid, fd, note)

    def _forward(self, file: int, tgid: int, call: rm.Call, aux: int = 0) -> tuple[int, int]:
        sizes = {"outer": len(call.outer), "params": len(call.params), "aux": aux}
        head = {"op": IOCTL, "cmd": call.cmd, "file": file, "tgid": tgid, **sizes}
        error, payload, _, got = self._ask(head, bytes(call.outer + call.params))
        if not error:
            pointer = bytes(call.outer[call.at : call.at + 8]) if call.at >= 0 else b""
            call.outer[:] = payload[: len(call.outer)]
            if pointer:
                call.outer[call.at : call.at + 8] = pointer
            back = payload[len(call.outer) :]
            call.params[: len(back)] = back
        return abs(error), got

    def continue_call(
        self, listener: int, note: int, tid: int, fd: int, outer: bytearray, number: int, memory: int
    ) -> tuple[int, int]:
        """There is no kernel that would go on with it: the call is made for its caller."""
        file = self._file(-1, tid, fd, 0)
        if not file:
            return 0, CONTINUE
        pointer, size = 0, 0
        if number in (rm.ALLOC, rm.CONTROL):
            at = 0x20 if number == rm.ALLOC and len(outer) == 48 else 0x18
            (pointer,), (size,) = struct.unpack_from("<Q", outer, 0x10), struct.unpack_from("<I", outer, at)
        params = bytearray(os.pread(memory, size, pointer)) if pointer and size else bytearray()
        call = rm.Call(number, outer, params, 0x10 if pointer else -1)
        other = {rm.REGISTER_FD: 0, rm.MAP: 0x30}.get(number)
        theirs = struct.unpack_from("<i", outer, other)[0] if other is not None else -1
        error, got = self._forward(
            file, _tgid(tid), call, self._file(listener, tid, theirs, note) if theirs >= 0 else 0
        )
        if params:
            os.pwrite(memory, params, pointer)
        if got >= 0:
            _add_fd(listener, note, got, theirs)
            os.close(got)
        return error, 0

    def execute(self, tid: int, fd: int, call: rm.Call) -> int:
        return self._forward(self._file(-1, tid, fd, 0), _tgid(tid), call)[0]

    def on_file(self, fd: int, call: rm.Call) -> int:
        other = {rm.REGISTER_FD: 0, rm.MAP: 0x30}.get(call.number)
        theirs = call.i32(other) if other is not None else -1
        aux = self._files.get(os.fstat(theirs).st_ino, 0) if theirs >= 0 else 0
        error, got = self._forward(self._files.get(os.fstat(fd).st_ino, 0), os.getpid(), call, aux)
        if got >= 0:
            # What is to be mapped takes the place of the file that was named for it.
            os.dup2(got, theirs, inheritable=False)
            os.close(got)
        return error

    def present(self) -> bool:
        return True


def _tgid(tid: int) -> int:
    with open(f"/proc/{tid}/status") as status:
        [tgid] = [int(line.split()[1]) for line in status if line.startswith("Tgid:")]
    return tgid


def _add_fd(listener: int, note: int, ours: int, theirs: int) -> None:
    import fcntl

    fcntl.ioctl(listener, ADD_FD, ADDFD.pack(note, SETFD, ours, theirs, os.O_CLOEXEC))


def find(name: str) -> str | None:
    """A program, the machine's own before the kit's."""
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin:{sys.prefix}/bin")


def python_with(module: str) -> str | None:
    """An interpreter of the machine's, which has that module; the kit's own has none of the kind."""
    for name in ("python3", "python"):
        found = shutil.which(name)
        if found:
            done = subprocess.run(
                [found, "-c", f"import {module}"],
                capture_output=True,
                check=False,
                env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"},
            )
            if done.returncode == 0:
                return found
    return None


def driver_version() -> str:
    """Of the loaded module; empty where there is none."""
    with suppress(OSError):
        text = Path("/proc/driver/nvidia/version").read_text()
        found = re.search(r"Kernel Module(?: for \S+)?\s+([0-9.]+)", text)
        return found[1] if found else ""
    return ""
