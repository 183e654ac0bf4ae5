"""What a driver has to be able to do for the player."""

from typing import Protocol

from lab.play.kernel import File
from lab.play.memory import Memory


class Driver(Protocol):
    name: str

    def begin(self) -> None: ...
    def open(self, node: str) -> File: ...
    def close(self, file: File) -> None: ...
    def fetch(self, pid: int, file: File) -> File: ...
    def poll(self, file: File) -> None: ...
    def ioctl(
        self,
        file: File,
        cmd: int,
        outer: bytearray | None,
        params: Memory | None,
        params_bytes: int,
        aux: File | None,
    ) -> None: ...
    def await_closes(self, pid: int | None = None) -> None: ...
    def map_at(self, file: File, linear: int) -> int: ...
