"""The program that moves a process's GPU state to host memory and back: mgpu-checkpoint, a line each way."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from oci_specs import paths

STARTED_S = 10.0
_LOOK_S = 0.02


def libcuda(driver: str) -> str:
    """The library that moves processes of that driver."""
    return paths.lib(os.path.join("sim", "libcuda.so.1")) if driver == "sim" else "libcuda.so.1"


class Failed(Exception):
    """The driver refuses: its name for that, and what it says."""


class Gone(Exception):
    """mgpu-checkpoint has ended, or did not answer: what it was at is not known."""


class Alone:
    """A lock that mgpud hands to each mgpu-checkpoint, and that ends with the last of them: those of the
    previous mgpud have ended once the next one has it.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd = -1

    async def lock(self) -> int:
        """The descriptor that holds it."""
        if self._fd < 0:
            fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                while not _locked(fd):
                    await asyncio.sleep(_LOOK_S)
            except BaseException:
                os.close(fd)
                raise
            self._fd = fd
        return self._fd

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _locked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class Checkpoint:
    """One such process, started with the first question and again after it has ended."""

    def __init__(self, libcuda: str, alone: Alone) -> None:
        self._libcuda = libcuda
        self._alone = alone
        self._process: Process | None = None
        self._lock = asyncio.Lock()

    async def state(self, pid: int) -> str:
        return await self._ask(f"state {pid}", STARTED_S)

    async def lock(self, pid: int, timeout_ms: int) -> None:
        """Its CUDA calls wait from here on, and what it has submitted has completed."""
        await self._ask(f"lock {pid} {max(1, timeout_ms)}", timeout_ms / 1000 + STARTED_S)

    async def checkpoint(self, pid: int, timeout_s: float) -> None:
        await self._ask(f"checkpoint {pid}", timeout_s)

    async def restore(self, pid: int, pairs: Iterable[tuple[str, str]] = ()) -> None:
        """It is locked afterwards. pairs: of each of its cards, the UUID of the one that it left and of the
        one that it comes to; none where these are the same.
        """
        moved = "".join(f" {old}={new}" for old, new in pairs)
        await self._ask(f"restore {pid}{moved}", None)

    async def unlock(self, pid: int) -> None:
        await self._ask(f"unlock {pid}", STARTED_S)

    async def start(self) -> None:
        """Loads libcuda before it is needed; Gone."""
        async with self._lock:
            await self._started()

    async def _started(self) -> Process:
        if self._process is None or self._process.returncode is not None:
            program = paths.libexec("mgpu-checkpoint")
            self._process = await asyncio.create_subprocess_exec(
                program,
                "--libcuda",
                self._libcuda,
                stdin=PIPE,
                stdout=PIPE,
                stderr=DEVNULL,
                pass_fds=[await self._alone.lock()],
            )
        return self._process

    async def _ask(self, line: str, timeout_s: float | None) -> str:
        async with self._lock:
            try:
                answer = await asyncio.wait_for(self._exchange(line), timeout_s)
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
        """Nothing is under way for it afterwards."""
        process = self._process
        self.close()
        if process is not None:
            await process.wait()

    def close(self) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.kill()
            self._process = None
