"""Programs of the experiments as the scheduler sees a tenant: groups, channels, open files; and their
records.
"""

import os
import struct
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from oci_specs import paths
from tests.gpu import rm
from tests.gpu.backend import Backend
from tests.gpu.supervise import How, Made, Supervised

READY_S = 20.0


@dataclass
class Target:
    """What of a program can be suspended: handles of its client that has the most channels."""

    program: Supervised
    client: int
    subdevice: int
    groups: list[Made]
    channels: list[Made]

    def control(self, thing: int, cmd: int, params: bytes) -> tuple[int, bytes, float]:
        """(status or negative errno, parameters after, us) of a control on its own open file, made by us."""
        fd = self.program.file_of(self.client)
        call = rm.control(self.client, thing, cmd, params)
        begin = time.monotonic_ns()
        error = self.program.backend.on_file(fd, call)
        took = (time.monotonic_ns() - begin) / 1000
        return (-error if error else call.u32(0x1C)), bytes(call.params), took

    def schedule(self, on: bool, only_graphics: bool = False) -> tuple[int, float]:
        """(first status that is not OK, us for all)."""
        worst, total = 0, 0.0
        for group in self.groups:
            if only_graphics and group.engine != rm.GRAPHICS:
                continue
            status, _, took = self.control(group.handle, rm.SCHEDULE, struct.pack("<BBB", on, 0, 0))
            worst, total = worst or status, total + took
        return worst, total

    def disable(self, on: bool) -> tuple[int, float]:
        handles = [one.handle for one in self.channels]
        status, _, took = self.control(
            self.subdevice, rm.DISABLE_CHANNELS, rm.disable(self.client, handles, not on)
        )
        return status, took

    def run(self, means: str, on: bool) -> tuple[int, float]:
        return self.schedule(on) if means == "schedule" else self.disable(on)

    def set_timeslice(self, us: int) -> int:
        return max(
            (self.control(one.handle, rm.SET_TIMESLICE, struct.pack("<Q", us))[0] for one in self.groups),
            default=-1,
        )


def target_of(program: Supervised) -> Target | None:
    channels = program.by_class(*rm.CHANNELS)
    if not channels:
        return None
    clients = [one.client for one in channels]
    client = max(set(clients), key=clients.count)
    subdevices = [one.handle for one in program.by_class(rm.SUBDEVICE) if one.client == client]
    return Target(
        program,
        client,
        subdevices[0] if subdevices else 0,
        [one for one in program.by_class(rm.GROUP) if one.client == client],
        [one for one in channels if one.client == client],
    )


class Load(Supervised):
    """mgpu-load under supervision; its requests are known when it has ended."""

    def __init__(self, backend: Backend, *args: str, how: How | None = None) -> None:
        descriptor, name = tempfile.mkstemp(prefix="mgpu-stamps-")
        os.close(descriptor)
        self._stamps = Path(name)
        argv = [paths.libexec("mgpu-load"), *args, "-o", "json"]
        if args[0] == "burst":
            argv += ["--stamps", name]
        super().__init__(backend, argv, how)

    def end(self) -> None:
        super().end()
        with suppress(FileNotFoundError):
            self._stamps.unlink()

    def stop(self) -> None:
        """SIGTERM: it reports and ends."""
        self.process.terminate()

    def requests(self) -> list[tuple[int, int]]:
        """(submitted, done) in ns of CLOCK_MONOTONIC."""
        rows = [line.split() for line in self._stamps.read_text().splitlines()]
        return [(int(row[0]), int(row[2])) for row in rows if len(row) >= 3]


@contextmanager
def working(backend: Backend, *args: str, how: How | None = None) -> Iterator[tuple[Load, Target | None]]:
    """A load that has its channels and has run for a moment, or has ended."""
    with Load(backend, *args, how=how) as load:
        assert isinstance(load, Load)
        end = time.monotonic() + READY_S
        while load.process.poll() is None and time.monotonic() < end and not load.by_class(*rm.CHANNELS):
            time.sleep(0.01)
        time.sleep(0.3)
        yield load, target_of(load)


def latencies_us(requests: Sequence[tuple[int, int]], since: int = 0, until: int = 1 << 63) -> list[float]:
    return [(done - at) / 1000 for at, done in requests if since <= at < until]
