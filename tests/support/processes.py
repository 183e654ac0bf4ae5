"""Daemons that live as long as a `with` block, and whatever they leave behind."""

import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from mgpu_cli.kernel import die_with_parent
from tests.support.logs import LOGS
from tests.support.waiting import until

STOP_TIMEOUT_S = 30.0


@contextmanager
def daemon(
    argv: Sequence[str | Path],
    *,
    log: Path,
    ready: Callable[[], bool],
    env: Mapping[str, str] | None = None,
    timeout_s: float = 60.0,
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program, its stdout and stderr in `log`, from the moment ready() is true; SIGTERM at the end.

    The kernel kills it when the tests are killed. AssertionError with its log when it ends before it is
    ready.
    """
    parent = os.getpid()
    # A daemon that is started again goes on in its log.
    with log.open("ab") as output:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(env or {})},
            process_group=0,
            preexec_fn=lambda: die_with_parent(signal.SIGKILL, parent),
        )
    LOGS.add(log)
    name = Path(argv[0]).name

    def is_ready() -> bool:
        if process.poll() is not None:
            raise AssertionError(
                f"{name} ended with {process.returncode}:\n{log.read_text(errors='replace')}"
            )
        return ready()

    try:
        until(is_ready, f"{name} is ready", timeout_s=timeout_s)
        yield process
    finally:
        stop(process)
        LOGS.remove(log)


class Service:
    """A daemon that tests may restart, from the thread that starts it: it dies with that thread. Use it as a
    context.

    start: begins one life of it.
    """

    def __init__(self, start: Callable[[], AbstractContextManager[subprocess.Popen[bytes]]]) -> None:
        self._start = start

    def __enter__(self) -> "Service":
        self._life = self._start()
        self.process = self._life.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._life.__exit__(None, None, None)

    def restart(self) -> None:
        """Ended as a service manager ends it, and started again; returns when it is ready."""
        self.__exit__()
        self.__enter__()


def stop(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM, and SIGKILL when that does not end it."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def kill_left_behind(home: Path) -> None:
    """Kill the processes in the tests' mount namespace that name `home` in their command line.

    Shims and monitors outlive their engine: they are nobody's children but init's.
    """
    # The whole name: another's may go on where this one ends.
    wanted = re.compile(re.escape(os.fsencode(home)) + rb"(?![\w.-])")
    for pid in others_here():
        with suppress(OSError):
            if wanted.search(Path(f"/proc/{pid}/cmdline").read_bytes()):
                os.kill(pid, signal.SIGKILL)


def others_here() -> Iterator[int]:
    """Pids of the other processes in the tests' mount namespace."""
    mine = os.readlink("/proc/self/ns/mnt")
    for entry in os.listdir("/proc"):
        with suppress(OSError):
            if (
                entry.isdigit()
                and int(entry) != os.getpid()
                and os.readlink(f"/proc/{entry}/ns/mnt") == mine
            ):
                yield int(entry)
