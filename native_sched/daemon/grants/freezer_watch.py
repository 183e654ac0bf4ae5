"""Sees containers being frozen and thawed, and says so once each time."""

import asyncio
import os
import select
from collections.abc import Callable, Iterable

from native_sched.daemon.grants.grants import Grant
from native_sched.daemon.node import freezer
from native_sched.daemon.node.freezer import StateFile

# Version 1 of cgroups has no notification, so it is polled: seldom, and often once a frozen container wants
# to go on.
LOOK_S, LOOK_FROZEN_S = 1.0, 0.05
READ_MAX_BYTES = 4096


class _Seen:
    """One container: what was last seen of it. fd: its state file, open; -1 while there is none."""

    file: StateFile | None = None

    def __init__(self, pid: int, frozen: bool) -> None:
        """frozen: as the engine was told last, perhaps by a previous mgpud."""
        self.pid = pid
        self.fd = -1
        self.frozen = frozen


class FreezerWatch:
    """Looks after the containers that hold a grant, as they come and go. In the event loop's thread.

    state_file: where a process's freezer shows its state; tests have another kernel.
    """

    def __init__(
        self,
        grants: Iterable[Grant],
        tell: Callable[[Grant, bool], None],
        state_file: Callable[[int], StateFile | None] = freezer.state_file,
    ) -> None:
        self._grants = grants
        self._tell = tell
        self._state_file = state_file
        self._seen: dict[str, _Seen] = {}
        # The kernel's word is POLLPRI, which asyncio does not wait for: an epoll of our own does, and is
        # waited for.
        self._epoll = select.epoll()

    async def run(self) -> None:
        """For ever."""
        loop = asyncio.get_running_loop()
        loop.add_reader(self._epoll.fileno(), self._told)
        try:
            while True:
                self.look()
                end = loop.time() + LOOK_S
                while (left_s := end - loop.time()) > 0:
                    await asyncio.sleep(min(left_s, LOOK_FROZEN_S) if self._looked_at_often() else left_s)
                    self._look_at_frozen()
        finally:
            loop.remove_reader(self._epoll.fileno())

    def close(self) -> None:
        for seen in self._seen.values():
            self._close(seen)
        self._epoll.close()

    def look(self) -> None:
        bound = {grant.container_id: grant for grant in self._grants if grant.state == "bound"}
        for gone in self._seen.keys() - bound.keys():
            self._close(self._seen.pop(gone))
        for grant in bound.values():
            seen = self._seen_of(grant)
            # Processes can be moved to another cgroup.
            if seen.file != (file := self._state_file(seen.pid)):
                self._close(seen)
                seen.file = file
            self._heed(grant, self._state(seen))

    def _looked_at_often(self) -> list[Grant]:
        """The containers that are frozen under version 1, and go on as soon as that ends."""
        often = {
            name for name, seen in self._seen.items() if seen.frozen and not (seen.file and seen.file.tells)
        }
        return [grant for grant in self._grants if grant.container_id in often] if often else []

    def _look_at_frozen(self) -> None:
        for grant in self._looked_at_often():
            if grant.state == "bound":
                self._heed(grant, self._state(self._seen_of(grant)))

    def hint(self, grant: Grant, frozen: bool) -> None:
        """A container engine reports a freeze or thaw; believed only where the kernel reports none."""
        if grant.state == "bound":
            state = self._state(self._seen_of(grant))
            self._heed(grant, frozen if state is None else state)

    def _told(self) -> None:
        self._epoll.poll(0)
        self.look()

    def _seen_of(self, grant: Grant) -> _Seen:
        assert grant.pid is not None  # it is bound
        seen = self._seen.get(grant.container_id)
        if seen is None or seen.pid != grant.pid:
            if seen is not None:
                self._close(seen)
            seen = self._seen[grant.container_id] = _Seen(grant.pid, grant.paused)
        return seen

    def _heed(self, grant: Grant, frozen: bool | None) -> None:
        seen = self._seen_of(grant)
        if frozen is not None and frozen != seen.frozen:
            seen.frozen = frozen
            self._tell(grant, frozen)

    def _state(self, seen: _Seen) -> bool | None:
        """None where it cannot be told."""
        if seen.file is None:
            seen.file = self._state_file(seen.pid)
        if seen.file is None:
            return None
        try:
            if seen.fd < 0:
                self._open(seen, seen.file)
            return freezer.is_frozen(os.pread(seen.fd, READ_MAX_BYTES, 0))
        except OSError:  # the cgroup is gone: its processes are in another one, or ended
            self._close(seen)
            return None

    def _open(self, seen: _Seen, file: StateFile) -> None:
        seen.fd = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
        if file.tells:
            # Edge-triggered: the same news once. To read from the start is what the kernel takes as having
            # noticed.
            self._epoll.register(seen.fd, select.EPOLLPRI | select.EPOLLET)

    def _close(self, seen: _Seen) -> None:
        if seen.fd >= 0:
            os.close(seen.fd)
            seen.fd = -1
        seen.file = None
