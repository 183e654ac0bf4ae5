"""Where mgpu keeps its state: files and sockets below one directory, and what is asked of it."""

import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from oci_specs import file_lock
from oci_specs.refusal import Refusal, quoted

DEFAULT_ROOT = Path("/run/mgpu")

# sun_path of unix(7) holds 108 bytes with its NUL; the longest name below the directory must still fit.
SOCKET_PATH_MAX_BYTES = 107
LONGEST_SOCKET = "sim/admin.sock"
# A holder whose supervisor was killed ends by itself, within a moment.
_HOLDER_ENDS_S, _LOOK_S = 2.0, 0.05


def _owner(descriptor: int) -> str:
    return os.read(descriptor, 32).decode("ascii", "replace").strip() or "unknown"


@dataclass(frozen=True)
class StateDir:
    """Names below the directory `path`, which is absolute. Nothing is touched until `create`."""

    path: Path

    @property
    def control(self) -> Path:
        return self.path / "mgpud.sock"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.sock"

    @property
    def seccomp(self) -> Path:
        return self.path / "seccomp.sock"

    @property
    def holder(self) -> Path:
        return self.path / "holder.sock"

    @property
    def notify(self) -> Path:
        """Where the holder tells `mgpu up` what to keep for it."""
        return self.path / "notify.sock"

    @property
    def mgpud_lock(self) -> Path:
        """Held by the mgpud that serves."""
        return self.path / "mgpud.lock"

    @property
    def sim(self) -> Path:
        return self.path / "sim"

    @property
    def cdi(self) -> Path:
        return self.path / "cdi"

    @property
    def runtime_conf(self) -> Path:
        return self.path / "runtime.conf"

    @property
    def runtime(self) -> Path:
        """What an engine is pointed at."""
        return self.path / "bin" / "mgpu-runtime"

    @property
    def runc_root(self) -> Path:
        """State of the containers that `mgpu run` starts: apart from the host's own runc containers."""
        return self.path / "runc"

    @property
    def log(self) -> Path:
        return self.path / "log"

    @property
    def sockets(self) -> tuple[Path, ...]:
        programs = (self.control, self.metrics, self.holder, self.seccomp, self.notify)
        return (*programs, self.sim / "admin.sock", self.sim / "card.sock")

    def create(self) -> None:
        """Make the directory (mode 0700) and what is below it; Refusal if the place will not do."""
        self._check_name()
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            found = self.path.stat()
            for below in (self.sim, self.cdi, self.log, self.runtime.parent):
                below.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise Refusal(
                "state-dir",
                f"cannot make the state directory {quoted(self.path)}: {error.strerror}",
                "choose another one with --root",
            ) from error
        # A user who can write here can put a socket of his own where engines look for mgpu's.
        if found.st_uid != os.geteuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise Refusal(
                "state-dir",
                f"the state directory {quoted(self.path)} can be written by other users",
                "choose a directory of its own with --root",
            )
        if os.statvfs(self.path).f_flag & os.ST_NOEXEC:
            raise Refusal(
                "state-dir",
                f"the directory {quoted(self.path)} is mounted noexec, but mgpu-runtime runs from it",
                "choose one elsewhere, such as --root /var/lib/mgpu",
            )

    def _check_name(self) -> None:
        name = os.fspath(self.path)
        # The name is written between double quotes into runtime.conf and onto the script's first line.
        if not name.isprintable() or set(name) & set('"\\'):
            raise Refusal(
                "state-dir",
                f"the state directory {quoted(name)} has a quote, a backslash or a control character in it",
                "choose another one with --root",
            )
        room_bytes = SOCKET_PATH_MAX_BYTES - len(LONGEST_SOCKET) - 1
        if len(os.fsencode(name)) > room_bytes:
            raise Refusal(
                "state-dir",
                f"the name of the state directory {quoted(name)} has {len(os.fsencode(name))} bytes, "
                f"and socket names leave room for {room_bytes}",
                "choose a shorter one with --root",
            )

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the directory for one supervisor, as long as it lives; Refusal if another one has it."""
        descriptor = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if not file_lock.taken(descriptor):
                raise Refusal(
                    "state-dir-busy",
                    f"another mgpu up (pid {_owner(descriptor)}) already serves {self.path}",
                    "stop that one, or choose another directory with --root",
                )
            self._check_holder()
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
            yield
            os.ftruncate(descriptor, 0)
        finally:
            os.close(descriptor)

    def _check_holder(self) -> None:
        """A holder takes this lock before it binds (native_sched/holder/sockets.c): its sockets stay."""
        try:
            descriptor = os.open(f"{self.seccomp}.lock", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        deadline = time.monotonic() + _HOLDER_ENDS_S
        try:
            while not file_lock.taken(descriptor):
                if time.monotonic() > deadline:
                    raise Refusal(
                        "state-dir-busy",
                        f"another mgpu-holder (pid {_owner(descriptor)}) already serves {self.path}",
                        "stop that one (systemctl stop mgpu-holder), or choose another directory with --root",
                    )
                time.sleep(_LOOK_S)
        finally:
            os.close(descriptor)

    def remove_sockets(self) -> None:
        """Remove the sockets that a stopped or killed supervisor's programs left behind."""
        for path in self.sockets:
            path.unlink(missing_ok=True)
