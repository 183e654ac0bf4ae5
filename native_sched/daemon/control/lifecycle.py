"""What happens to a grant after admission: bound to a process, served, drained, given back."""

import asyncio
import errno
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from native_sched.daemon.engine_abi import Unsuspendable
from native_sched.daemon.grants import new_tenant
from native_sched.daemon.grants.grants import Grant, Node
from native_sched.daemon.grants.served import Served
from native_sched.daemon.grants.store import not_recorded
from native_sched.daemon.links.listeners import Listeners, Lost
from native_sched.daemon.log import LOG
from native_sched.daemon.node import device_nodes as nodes
from native_sched.daemon.node import process_id, without
from oci_specs.refusal import Refusal

_NS_PER_S = 1_000_000_000


class Watches:
    """pidfds in the event loop: each calls back once, when its process has ended."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._fds: dict[object, int] = {}

    def watch(self, key: object, pid: int, start: int, ended: Callable[[], None]) -> None:
        """ProcessLookupError if that process has exited; a second watch of a key replaces the first."""
        fd = process_id.open_process(pid, start)
        self.forget(key)
        self._fds[key] = fd

        def fire() -> None:
            self.forget(key)
            ended()

        self._loop.add_reader(fd, fire)

    def kill(self, key: object) -> None:
        """The process under that key, if it lives; with the first of a pid namespace, all of them end."""
        fd = self._fds.get(key)
        if fd is not None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(fd, signal.SIGKILL)

    def forget(self, key: object) -> None:
        fd = self._fds.pop(key, None)
        if fd is not None:
            self._loop.remove_reader(fd)
            os.close(fd)

    def close(self) -> None:
        for key in list(self._fds):
            self.forget(key)


class Lifecycle:
    """Moves grants through their states. Every method is idempotent and runs in the event loop's thread.

    Each step is written down before it is said to be done, so that the next mgpud goes on from there.
    """

    def __init__(self, served: Served, loop: asyncio.AbstractEventLoop) -> None:
        self._served = served
        self._loop = loop
        self._watches = Watches(loop)
        self._leases: dict[str, asyncio.TimerHandle] = {}
        # Called with a grant whose container is about to be forgotten by the engine, or not yet.
        self.before_end: Callable[[Grant], object] = lambda grant: None
        # Nonces of grants that cannot be read, and the containers that run under them.
        self.lost: dict[str, str] = {}

    def close(self) -> None:
        self._watches.close()

    def begin(self, grant: Grant, runtime_pid: int, lease_seconds: float) -> None:
        """Registers an admitted grant; Refusal when that cannot be.

        The reservation ends when the runtime's process ends before it is bound (it becomes runc by exec and
        is gone after a failed create), or when the lease runs out.
        """
        with suppress(ProcessLookupError):
            grant.runtime_start = process_id.start_time(runtime_pid)
        grant.runtime_pid = runtime_pid
        grant.lease_end_ns = time.monotonic_ns() + int(lease_seconds * _NS_PER_S)
        try:
            self._served.node.save(last_tenant=max(self._served.node.now.last_tenant, grant.tenant))
        except OSError as error:
            raise not_recorded(grant.name, self._served.store.folder, error) from error
        self._served.store.save(grant)
        try:
            new_tenant.add(self._served.engine, self._served.config, grant)
        except OSError as error:
            self._finish(grant)
            raise Refusal(
                "not-served",
                f"the engine does not take container {grant.name} ({error.strerror})",
                "wait until another container ends; see what mgpud logs",
            ) from error
        self._served.grants.add(grant)
        try:
            self._served.scheduling.apply()
        except OSError as error:
            self._finish(grant)
            raise Refusal(
                "not-scheduled",
                f"the scheduler does not take container {grant.name} ({error.strerror})",
                "see what mgpud logs, then create it anew",
            ) from error
        self._wait_for_bind(grant, lease_seconds)

    def _wait_for_bind(self, grant: Grant, seconds: float) -> None:
        try:
            self._watches.watch(
                (grant.nonce, "runtime"),
                grant.runtime_pid,
                grant.runtime_start,
                lambda: self._unless_bound(grant),
            )
        except ProcessLookupError:
            self._loop.call_soon(self._unless_bound, grant)
        # It would keep the grant until the lease is over, long after a container of an instant has gone.
        self._end_lease(grant)
        self._leases[grant.nonce] = self._loop.call_later(seconds, self._unless_bound, grant)

    def _end_lease(self, grant: Grant) -> None:
        timer = self._leases.pop(grant.nonce, None)
        if timer is not None:
            timer.cancel()

    def _unless_bound(self, grant: Grant) -> None:
        if grant.state == "admitted":
            LOG.warning("not-created", container=grant.container_id, grant=grant.id)
            self.release(grant)

    def bind(self, grant: Grant, pid: int, *, restored: bool = False) -> None:
        """Ties an admitted grant to the container's init process. Refusal when that cannot be.

        restored: from a checkpoint; it has changed its root already.
        """
        if grant.state == "bound" and grant.pid == pid:
            return
        if grant.state != "admitted":
            raise Refusal(
                "grant-used",
                f"the grant of container {grant.name} is {grant.state}",
                "create it anew",
            )
        try:
            start = process_id.start_time(pid)
            program = process_id.program(pid)
            devices = grant.edits.get("devices", [])
            if restored:  # where it comes from there may be fewer cards
                found = nodes.identities(pid, "", devices, {card.minor for card in grant.cards})
            else:
                found = nodes.identities(pid, grant.rootfs, devices)
            self._watches.watch((grant.nonce, "init"), pid, start, lambda: self.release(grant))
        except ProcessLookupError as error:
            raise Refusal(
                "no-process", f"process {pid} of the container is gone", "create it anew"
            ) from error
        seen = tuple(Node(stat.st_dev, stat.st_ino, kind, minor) for stat, kind, minor in found)
        try:
            for node in replace(grant, nodes=seen).own_nodes:
                self._served.engine.add_node(grant.tenant, *node)
            self._served.engine.pid_space(grant.tenant, process_id.pid_namespace(pid))
            self._served.store.save(
                grant, state="bound", pid=pid, pid_start=start, program=program, nodes=seen
            )
        except BaseException:
            self._watches.forget((grant.nonce, "init"))
            raise
        grant.state = "bound"
        grant.pid, grant.pid_start, grant.program, grant.nodes = pid, start, program, seen
        self._end_lease(grant)
        self._watches.forget((grant.nonce, "runtime"))

    def resume_all(self, listeners: Listeners) -> None:
        """Looks after what the previous mgpud has left, once the engine serves it."""
        for grant in self._served.grants:
            self.resume(grant)
        for lost in listeners.lost:
            self.watch_lost(lost)
        for nonce in listeners.unreadable - self.lost.keys():
            self._served.store.forget_unreadable(nonce)

    def resume(self, grant: Grant) -> None:
        """Goes on with a grant that the previous mgpud left behind and the engine has by now."""
        if grant.state == "admitted":
            left_ns = grant.lease_end_ns - time.monotonic_ns()
            self._wait_for_bind(grant, max(0.0, left_ns / _NS_PER_S))
        elif grant.state == "draining":
            self._finish(grant)
        else:
            assert grant.pid is not None  # it is bound
            try:
                self._watches.watch(
                    (grant.nonce, "init"), grant.pid, grant.pid_start, lambda: self.release(grant)
                )
            except ProcessLookupError:
                LOG.info("ended-meanwhile", container=grant.container_id, grant=grant.id)
                self.release(grant)
                return
            if grant.unaccounted_bytes:
                self.kill(grant)

    def release(self, grant: Grant) -> None:
        """The container ended or never came to be. What it holds in the driver ends with its last process."""
        was = grant.state
        grant.state = "draining"
        self._end_lease(grant)
        self._watches.forget((grant.nonce, "init"))
        self._watches.forget((grant.nonce, "runtime"))
        if not self._finish(grant) and was != "draining":
            self._served.store.note(grant)

    def _finish(self, grant: Grant) -> bool:
        """Whether nothing is left of it."""
        self.before_end(grant)
        try:
            self._served.engine.remove_tenant(grant.tenant)
        except OSError as error:
            if error.errno == errno.EBUSY:
                return False
            if error.errno != errno.ENOENT:
                raise
        self._served.grants.remove(grant)
        self._served.store.remove(grant)
        try:
            self._served.scheduling.apply()
        except OSError as error:
            LOG.error("share-not-given-on", container=grant.container_id, why=error.strerror)
        return True

    def kill(self, grant: Grant) -> None:
        """Ends the container. Its grant ends with its last process."""
        self._watches.kill((grant.nonce, "init"))

    def something_ended(self) -> None:
        """A listener is gone, or a file of a tenant without one: perhaps the last of a draining grant."""
        with suppress(BlockingIOError):
            os.read(self._served.engine.event_fd, 8)
        for grant in self._served.grants:
            self._kill_if_caught(grant)
            if grant.state == "draining":
                self._finish(grant)

    def _kill_if_caught(self, grant: Grant) -> None:
        """Kill a container with more memory, by the driver's count, than it was charged for.

        Also kill one that cannot be suspended: its file is unlocated, or the driver refuses.
        """
        try:
            state = self._served.engine.state(grant.tenant)
        except OSError:
            return
        if state.unsuspendable and not grant.unsuspendable:
            if state.unsuspendable == Unsuspendable.HIDDEN:
                grant.unsuspendable = "no process shows its driver files"
                LOG.error("killed-hidden", container=grant.container_id)
            else:
                refused = without.why(state.refused) if state.refused else "no answer"
                grant.unsuspendable = f"the driver refuses to suspend it, {refused}"
                LOG.error("killed-unsuspendable", container=grant.container_id, why=refused)
            self.kill(grant)
        found = state.unaccounted_bytes
        if not found or grant.unaccounted_bytes:
            return
        grant.unaccounted_bytes = found
        LOG.error("killed-unaccounted", container=grant.container_id, bytes=found)
        self.kill(grant)
        self._served.store.note(grant)

    def watch_lost(self, lost: Lost) -> None:
        """A container runs under a grant that cannot be read: nothing new is admitted until it has ended."""
        try:
            self._watches.watch((lost.nonce, "lost"), lost.pid, 0, lambda: self._lost_ended(lost))
        except OSError:  # it is gone, or the runtime told no pid
            self._served.store.forget_unreadable(lost.nonce)
            return
        self.lost[lost.nonce] = lost.container_id
        LOG.error(
            "grant-lost",
            container=lost.container_id,
            pid=lost.pid,
            what="no service, and nothing new until it ends",
        )

    def _lost_ended(self, lost: Lost) -> None:
        self.lost.pop(lost.nonce, None)
        LOG.info("lost-container-ended", container=lost.container_id)
        self._served.store.forget_unreadable(lost.nonce)
