"""Programs that a foreground supervisor starts in order, watches, and stops in reverse order."""

import os
import select
import selectors
import signal
import socket
import subprocess
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import Self

from mgpu_cli.fd_store import FdStore
from mgpu_cli.kernel import die_with_parent
from oci_specs.bound_path import LOOK_SECONDS

READY_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 5.0
LOG_TAIL_LINES = 10
READ_BYTES = 65536
# Before a program that ended young, more than once in a row, is started again.
PAUSE_FIRST_S = 0.05
PAUSE_MAX_S = 5.0
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(Exception):
    """One of STOP_SIGNALS arrived."""


class Ended(Exception):
    """A program ended, or did not get ready in time. `tail` holds the last lines of its log."""

    def __init__(self, name: str, what: str, log: Path) -> None:
        super().__init__(f"{name} {what}")
        self.log = log
        self.tail = _tail(log)


@dataclass(frozen=True)
class _Spec:
    """What is started. again: also when it has ended; speaker: whose log tells why it does not get ready;
    store: what keeps its descriptors from one life to the next.
    """

    name: str
    argv: Sequence[str]
    again: bool
    speaker: str | None
    store: FdStore | None


@dataclass
class _Program:
    """A running child. Its stdout is read for the line "ready" and copied into the log, beside stderr.
    before: it was ready in an earlier life.
    """

    spec: _Spec
    process: subprocess.Popen[bytes]
    pidfd: int
    output: int
    log: Path
    printed: bytes = b""
    ready: bool = False
    before: bool = False


class Supervisor:
    """Context manager; leaving it stops every program that was started, the last one first.

    The programs get SIGKILL from the kernel when the supervisor itself is killed, so nothing outlives it.
    """

    def __init__(self, log_dir: Path, told: Callable[[str], object] = lambda line: None) -> None:
        """told: called with a line when a program is started again."""
        self._log_dir = log_dir
        self.told = told
        self._programs: list[_Program] = []
        self._young_ends = 0

    def __enter__(self) -> Self:
        self._selector = selectors.DefaultSelector()
        self._wake, self._waker = socket.socketpair()
        self._waker.setblocking(False)
        self._selector.register(self._wake, selectors.EVENT_READ, None)
        self._old_wakeup = signal.set_wakeup_fd(self._waker.fileno())
        self._old_handlers = {number: signal.signal(number, _noted) for number in STOP_SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for program in reversed(self._programs):
            self._stop(program)
        for number, handler in self._old_handlers.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._old_wakeup)
        self._selector.close()
        self._wake.close()
        self._waker.close()

    def start(
        self,
        name: str,
        argv: Sequence[str],
        *,
        again: bool = False,
        speaker: str | None = None,
        store: FdStore | None = None,
    ) -> None:
        """Start a program and wait for its line "ready"; Ended if it does not come, Stopped if told to.

        again: start it again when it ends, but for when it ends by itself before it has ever been ready.
        speaker: the program that it runs in its turn, with a log of its own, which tells why it does not get
        ready. store: what it may keep descriptors in.
        """
        program = self._spawn(_Spec(name, argv, again, speaker, store), "wb")
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not program.ready:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise self._ended(program, f"did not get ready within {READY_TIMEOUT_S:.0f} s")
            self._step(left_s)

    def watch(self) -> None:
        """Return never: Stopped when asked to stop, Ended when a program ends that is not started again."""
        while True:
            self._step(LOOK_SECONDS)
            for program in self._programs:
                self._look_at_store(program)

    def _look_at_store(self, program: _Program) -> None:
        store = program.spec.store
        if store is None or not store.is_gone():
            return
        before = store.fileno()
        try:
            store.serve_anew(program.process.pid)
        except OSError:
            # The file system may be full for a while.
            return
        self._selector.unregister(before)
        self._selector.register(store, selectors.EVENT_READ, program)
        self.told(f"{store.path} was removed, and is served anew")

    def _spawn(self, spec: _Spec, mode: str) -> _Program:
        log = self._log_dir / f"{spec.name}.log"
        parent = os.getpid()

        def begin() -> None:
            die_with_parent(signal.SIGKILL, parent)
            if spec.store is not None:
                spec.store.become(spec.argv)

        with log.open(mode) as log_file:
            process = subprocess.Popen(
                spec.argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log_file,
                # A group of its own: ^C on the terminal goes to the supervisor, which stops them in order.
                process_group=0,
                preexec_fn=begin,
            )
        assert process.stdout is not None
        program = _Program(spec, process, os.pidfd_open(process.pid), process.stdout.fileno(), log)
        self._programs.append(program)
        self._selector.register(program.pidfd, selectors.EVENT_READ, program)
        self._selector.register(program.output, selectors.EVENT_READ, program)
        if spec.store is not None:
            self._selector.register(spec.store, selectors.EVENT_READ, program)
        return program

    def _step(self, timeout_s: float | None) -> None:
        # Output first: a program's last words are in its log before its end is reported.
        ended = None
        for key, _ in self._selector.select(timeout_s):
            program: _Program | None = key.data
            if program is None:
                raise Stopped
            if key.fd == program.output:
                self._read(program)
            elif key.fd == program.pidfd:
                ended = program
            elif program.spec.store is not None:
                program.spec.store.read(program.process.pid)
        if ended is not None:
            self._end(ended)

    def _end(self, program: _Program) -> None:
        status = program.process.wait()
        before = program.ready or program.before
        # What refuses to start now may start later, and what it has in its store would be lost.
        if not program.spec.again or (not before and status >= 0):
            raise self._ended(program, _how(status))
        self._young_ends = 0 if program.ready else self._young_ends + 1
        self.told(f"{program.spec.name} {_how(status)}, and is started again")
        if self._young_ends > 1:
            self._pause(min(PAUSE_FIRST_S * 2.0**self._young_ends, PAUSE_MAX_S))
        at = self._programs.index(program)
        watched: list[int | FdStore] = [program.pidfd, program.output]
        if program.spec.store is not None:
            program.spec.store.read(program.process.pid)
            watched.append(program.spec.store)
        for fd in watched:
            with suppress(KeyError):
                self._selector.unregister(fd)
        self._stop(program)
        del self._programs[at]
        self._spawn(program.spec, "ab").before = before
        # It is stopped when it was before.
        self._programs.insert(at, self._programs.pop())

    def _pause(self, seconds: float) -> None:
        waits = select.poll()
        waits.register(self._wake, select.POLLIN)
        if waits.poll(seconds * 1000):
            raise Stopped

    def _ended(self, program: _Program, what: str) -> Ended:
        speaker = program.spec.speaker
        log = self._log_dir / f"{speaker}.log"
        if speaker and not program.ready and log.exists() and _tail(log):
            return Ended(speaker, what, log)
        return Ended(program.spec.name, what, program.log)

    def _read(self, program: _Program) -> None:
        data = os.read(program.output, READ_BYTES)
        if not data:
            self._selector.unregister(program.output)
            return
        with program.log.open("ab") as log_file:
            log_file.write(data)
        if not program.ready:
            program.printed += data
            program.ready = b"ready" in program.printed.splitlines()

    def _stop(self, program: _Program) -> None:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(program.pidfd, signal.SIGTERM)
            try:
                program.process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                signal.pidfd_send_signal(program.pidfd, signal.SIGKILL)
        program.process.wait()
        assert program.process.stdout is not None
        program.process.stdout.close()
        os.close(program.pidfd)


def _noted(number: int, frame: FrameType | None) -> None:
    """Nothing: the wake-up descriptor has told the loop, and a handler must exist for that to happen."""


def _how(status: int) -> str:
    return f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"


def _tail(log: Path) -> list[str]:
    with log.open(errors="replace") as lines:
        printed = (line.rstrip("\n") for line in lines if line != "ready\n")
        return list(deque(printed, LOG_TAIL_LINES))
