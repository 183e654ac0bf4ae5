"""The program that moves a process's GPU state to host memory and back: mgpu-checkpoint, a line each way."""

import asyncio
import json
import os
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from oci_specs import file_lock, paths
from oci_specs.refusal import Refusal

STARTED_S = 10.0
_LOOK_S = 0.02
_COUNT_S = 0.25
_Answer = TypeVar("_Answer")


def _command(driver: str) -> list[str]:
    """With the library that moves processes of that driver; OSError where either is not there."""
    try:
        libcuda = paths.lib(os.path.join("sim", "libcuda.so.1")) if driver == "sim" else "libcuda.so.1"
        return [paths.libexec("mgpu-checkpoint"), "--libcuda", libcuda]
    except Refusal as refusal:
        raise FileNotFoundError(refusal.message) from refusal


class Failed(Exception):
    """The driver refuses: its name for that, and what it says."""


class Gone(Exception):
    """mgpu-checkpoint has ended, or did not answer: what it was at is not known."""


@dataclass(frozen=True)
class Patience:
    """How long a step may take, of the time in which counts() is true."""

    seconds: float
    counts: Callable[[], bool] = lambda: True

    async def of(self, work: Coroutine[Any, Any, _Answer]) -> _Answer:
        """TimeoutError. Pieces of time, not a clock: what stops mgpud stops the step too."""
        task, left_s = asyncio.ensure_future(work), self.seconds
        try:
            while left_s > 0:
                piece_s = min(left_s, _COUNT_S)
                await asyncio.wait({task}, timeout=piece_s)
                if task.done():
                    return task.result()
                if self.counts():
                    left_s -= piece_s
            raise TimeoutError
        finally:
            task.cancel()


class Alone:
    """A lock that mgpud hands to each mgpu-checkpoint, and that ends with the last of them: those of the
    previous mgpud have ended once the next one has it.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd = -1

    async def lock(self) -> int:
        """The descriptor that holds it, for however many wait at a time."""
        while self._fd < 0:
            fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            if file_lock.taken(fd):
                self._fd = fd
            else:
                os.close(fd)
                await asyncio.sleep(_LOOK_S)
        return self._fd

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class Checkpoint:
    """One such process, started with the first question and again after it has ended."""

    def __init__(self, driver: str, alone: Alone) -> None:
        self._driver = driver
        self._alone = alone
        self._process: Process | None = None
        self._lock = asyncio.Lock()

    async def state(self, pid: int) -> str:
        return await self._ask(f"state {pid}", Patience(STARTED_S))

    async def lock(self, pid: int, timeout_ms: int) -> None:
        """Its CUDA calls wait from here on, and what it has submitted has completed."""
        await self._ask(f"lock {pid} {max(1, timeout_ms)}", Patience(timeout_ms / 1000 + STARTED_S))

    async def checkpoint(self, pid: int, patience: Patience) -> None:
        await self._ask(f"checkpoint {pid}", patience)

    async def restore(self, pid: int, patience: Patience, pairs: Iterable[tuple[str, str]] = ()) -> None:
        """It is locked afterwards. pairs: of each of its cards, the UUID of the one that it left and of the
        one that it comes to; none where these are the same.
        """
        moved = "".join(f" {old}={new}" for old, new in pairs)
        await self._ask(f"restore {pid}{moved}", patience)

    async def unlock(self, pid: int) -> None:
        await self._ask(f"unlock {pid}", Patience(STARTED_S))

    async def start(self) -> None:
        """Loads libcuda before it is needed; OSError."""
        async with self._lock:
            await Patience(STARTED_S).of(self._started())

    async def _started(self) -> Process:
        if self._process is None or self._process.returncode is not None:
            self._process = await asyncio.create_subprocess_exec(
                *_command(self._driver),
                stdin=PIPE,
                stdout=PIPE,
                stderr=DEVNULL,
                pass_fds=[await self._alone.lock()],
            )
        return self._process

    async def _ask(self, line: str, patience: Patience) -> str:
        async with self._lock:
            try:
                answer = await patience.of(self._exchange(line))
            except (OSError, ValueError, TimeoutError) as error:
                await self._end()
                raise Gone(f"mgpu-checkpoint does not answer {line.split()[0]}") from error
        if "error" in answer:
            raise Failed(f"{answer['error']} at {line.split()[0]}: {answer.get('message', '')}")
        return str(answer["state"])

    async def _exchange(self, line: str) -> dict[str, Any]:
        process = await self._started()
        assert process.stdin is not None  # both are pipes
        assert process.stdout is not None
        process.stdin.write(f"{line}\n".encode())
        await process.stdin.drain()
        answer = json.loads(await process.stdout.readline())
        if not isinstance(answer, dict) or not {"state", "error"} & answer.keys():
            raise ValueError("no answer")
        return answer

    async def _end(self) -> None:
        """It asks for nothing more afterwards. One that the driver holds fast ends when that lets go."""
        process = self._process
        self.close()
        if process is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(STARTED_S):
                    await process.wait()

    def close(self) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.kill()
            self._process = None
