"""The native engine as Python sees it: a thin, typed layer over native_sched/engine/engine.h.

Every call crosses the C ABI once and returns; ioctls are served by the engine's own threads, which never take
the interpreter's lock. Failures are OSError with the engine's errno.
"""

import ctypes
import errno
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from ctypes import byref, c_int32, c_uint64, c_void_p

from native_sched.daemon import engine_abi as abi
from oci_specs.driver_capabilities import GRAPHICS, VIDEO
from oci_specs.refusal import Refusal, printable
from oci_specs.vocabulary import POLICIES


def _checked(result: int) -> int:
    if result < 0:
        raise OSError(-result, os.strerror(-result))
    return result


class Engine:
    """One running engine. Tenants are named by a positive integer of the caller's choice."""

    def __init__(self, lib: ctypes.CDLL, handle: c_void_p) -> None:
        self._lib = lib
        self._handle = handle

    def context_bytes(self, minor: int, *, copies: bool) -> int:
        """What the driver takes of a card for a channel group by itself, measured; OSError."""
        out = c_uint64()
        _checked(self._lib.mgpu_engine_context_bytes(self._handle, minor, copies, byref(out)))
        return out.value

    def add_card(self, card: abi.Card) -> None:
        """Or takes a released one again, which no tenant has by now."""
        _checked(self._lib.mgpu_engine_add_card(self._handle, byref(card)))

    def release_card(self, card: int) -> None:
        """Lets go of its files and registers; what tenants have of it they keep. From add_card()'s thread."""
        _checked(self._lib.mgpu_engine_release_card(self._handle, card))

    @property
    def rm_table(self) -> str:
        """The driver version at which the newest of the struct sizes in use appeared."""
        major, minor = divmod(int(self._lib.mgpu_engine_rm_table(self._handle)), 1 << 16)
        return f"{major}.{minor}"

    @property
    def event_fd(self) -> int:
        """Readable when a listener or a listenerless tenant's open file ended; read 8 bytes to reset."""
        return int(self._lib.mgpu_engine_event_fd(self._handle))

    @property
    def driver_alive(self) -> bool:
        return bool(self._lib.mgpu_engine_driver_alive(self._handle))

    def add_tenant(self, tenant: int) -> bool:
        """Whether it was taken over from the journal: with its objects, files, charges and channel groups."""
        return bool(_checked(self._lib.mgpu_tenant_add(self._handle, tenant)))

    def grant(self, tenant: int, card: int, cap_bytes: int) -> None:
        _checked(self._lib.mgpu_tenant_grant(self._handle, tenant, card, cap_bytes))

    def whole(self, tenant: int) -> None:
        """It holds its cards alone; OSError(EBUSY) where it does not."""
        _checked(self._lib.mgpu_tenant_whole(self._handle, tenant))

    def capabilities(self, tenant: int, names: Collection[str]) -> None:
        found = (VIDEO in names) | (GRAPHICS in names) << 1  # enum rm_capability
        _checked(self._lib.mgpu_tenant_capabilities(self._handle, tenant, found))

    def move(self, tenant: int, old: int, new: int) -> None:
        """OSError(EBUSY) while it has something on the old card; EAGAIN while a call of it is under way."""
        _checked(self._lib.mgpu_tenant_move(self._handle, tenant, old, new))

    def add_node(self, tenant: int, dev: int, ino: int, kind: abi.NodeKind, minor: int) -> None:
        _checked(self._lib.mgpu_tenant_add_node(self._handle, tenant, dev, ino, kind, minor))

    def pid_space(self, tenant: int, pid_namespace: int) -> None:
        """Where its processes are, as process_id.pid_namespace() names it."""
        _checked(self._lib.mgpu_tenant_space(self._handle, tenant, pid_namespace))

    def evict_wait(self, wait_ms: int) -> None:
        """How long calls of online tenants wait for memory of reclaimable ones; 0: not at all."""
        _checked(self._lib.mgpu_evict_wait(self._handle, wait_ms))

    def memory(self, tenant: int, kind: abi.MemoryKind) -> None:
        _checked(self._lib.mgpu_tenant_memory(self._handle, tenant, kind))

    def reclaim(self, tenant: int, *, closed: bool, room_bytes: Mapping[int, int] | None = None) -> None:
        """Whether it gets memory, and what is reserved for it by card; OSError(ENOSPC) without room."""
        room = (c_uint64 * abi.MAX_CARDS)()
        for card, size in (room_bytes or {}).items():
            room[card] = size
        _checked(self._lib.mgpu_tenant_reclaim(self._handle, tenant, closed, room))

    def drain(self, tenant: int, until_ns: int) -> None:
        """Lets a tenant that is evicted run beside online work until then (CLOCK_MONOTONIC); 0: no longer."""
        _checked(self._lib.mgpu_tenant_drain(self._handle, tenant, until_ns))

    def card_memory(self, card: int) -> abi.CardMemory:
        out = abi.CardMemory()
        _checked(self._lib.mgpu_card_memory(self._handle, card, byref(out)))
        return out

    def usage(self, tenant: int, card: int) -> abi.Usage:
        out = abi.Usage()
        _checked(self._lib.mgpu_tenant_usage(self._handle, tenant, card, byref(out)))
        return out

    def processes(self, tenant: int) -> list[abi.Process]:
        out = (abi.Process * abi.MAX_PROCESSES)()
        count = _checked(self._lib.mgpu_tenant_processes(self._handle, tenant, out, abi.MAX_PROCESSES))
        return list(out[:count])

    def state(self, tenant: int) -> abi.TenantState:
        out = abi.TenantState()
        _checked(self._lib.mgpu_tenant_state(self._handle, tenant, byref(out)))
        return out

    def remove_tenant(self, tenant: int) -> None:
        """OSError(EBUSY) while a listener, an open file or a poll of it is left; event_fd tells when."""
        _checked(self._lib.mgpu_tenant_remove(self._handle, tenant))

    def configure(self, config: abi.SchedConfig) -> None:
        _checked(self._lib.mgpu_sched_configure(self._handle, byref(config)))

    def card_policy(self, card: int, policy: str) -> None:
        _checked(self._lib.mgpu_card_policy(self._handle, card, POLICIES.index(policy)))

    def schedule(self, tenant: int, tenant_class: abi.TenantClass, quota_percent: int) -> None:
        """Hands the tenant to the scheduler, or changes its class and its share of each card (1 to 100)."""
        _checked(self._lib.mgpu_tenant_schedule(self._handle, tenant, tenant_class, quota_percent))

    def pause(self, tenant: int, paused: bool) -> None:
        """Suspends its work because its container is frozen, or ends that; OSError(ENOENT): not scheduled."""
        _checked(self._lib.mgpu_tenant_pause(self._handle, tenant, paused))

    def sched(self, tenant: int) -> abi.SchedState:
        out = abi.SchedState()
        _checked(self._lib.mgpu_tenant_sched(self._handle, tenant, byref(out)))
        return out

    def events(self, since: int) -> tuple[list[abi.SchedEvent], int, int]:
        """What happened since event number `since`, the number to go on with, and how many were forgotten."""
        out = (abi.SchedEvent * abi.MAX_EVENTS)()
        after, lost = c_uint64(), c_uint64()
        count = _checked(
            self._lib.mgpu_sched_events(self._handle, since, out, abi.MAX_EVENTS, byref(after), byref(lost))
        )
        return list(out[:count]), after.value, lost.value

    def without(self, card: int) -> dict[abi.Without, int]:
        """What the scheduler does without there: RM's status, or a negative errno."""
        found = (c_int32 * len(abi.Without))()
        _checked(self._lib.mgpu_card_without(self._handle, card, found))
        return {what: found[what] for what in abi.Without if found[what]}

    def chip(self, card: int) -> abi.Chip:
        found = abi.Chip()
        _checked(self._lib.mgpu_card_chip(self._handle, card, found))
        return found

    @property
    def realtime(self) -> bool:
        """Whether the scheduler's thread runs under SCHED_FIFO."""
        return bool(self._lib.mgpu_sched_realtime(self._handle))

    def add_listener(self, tenant: int, fd: int, holder_id: int) -> bool:
        """Whether an in-flight call of the previous mgpud was answered first.

        holder_id: its name in the journal. The engine owns fd from here on, also when this raises.
        """
        return bool(_checked(self._lib.mgpu_listener_add(self._handle, tenant, fd, holder_id)))

    def recovered(self) -> int:
        """All grants and listeners were taken over: the journal forgets others, and how many is returned."""
        return _checked(self._lib.mgpu_recovered(self._handle))

    @property
    def guarded(self) -> bool:
        return bool(_checked(self._lib.mgpu_engine_guarded(self._handle)))

    @property  # upper bounds of the buckets of Stats.preemption but the last, which has none
    def latency_bounds_ns(self) -> tuple[int, ...]:
        return tuple(abi.Bounds.in_dll(self._lib, "mgpu_latency_bounds_ns"))

    @property  # of Stats.parked
    def parked_bounds_ns(self) -> tuple[int, ...]:
        return tuple(abi.Bounds.in_dll(self._lib, "mgpu_parked_bounds_ns"))

    def stats(self) -> abi.Stats:
        out = abi.Stats()
        _checked(self._lib.mgpu_engine_stats(self._handle, byref(out)))
        return out

    def pulse(self) -> abi.Pulse:
        """Has the scheduler's thread turn once more: if it has not by the next pulse, it is stuck."""
        out = abi.Pulse()
        _checked(self._lib.mgpu_engine_pulse(self._handle, byref(out)))
        return out

    def refused(self, tenant: int) -> tuple[int, ...]:
        """How many of the tenant's calls mgpu refused, by Refused."""
        out = (c_uint64 * len(abi.Refused))()
        _checked(self._lib.mgpu_tenant_refused(self._handle, tenant, out))
        return tuple(out)


@contextmanager
def open_engine(
    library: str, driver: str, directory: str, version: str, journal: str | None = None
) -> Iterator[Engine]:
    """Starts the engine on `driver` ("sim"); `directory` has its sockets, `journal` what the next takes over.

    version: of the running driver, or of one that it is like. OSError: no library, or the driver does not
    answer; Refusal: a driver or a version that it does not know.
    """
    lib = ctypes.CDLL(library)
    for name, (arguments, result) in abi.SIGNATURES.items():
        function = getattr(lib, name)
        function.argtypes = arguments
        function.restype = result
    if lib.mgpu_engine_abi() != abi.ABI:
        raise OSError(f"{library} speaks ABI {lib.mgpu_engine_abi()}, this mgpud {abi.ABI}: reinstall mgpu")
    handle = c_void_p()
    result = lib.mgpu_engine_open(
        driver.encode(),
        os.fsencode(directory),
        version.encode(),
        None if journal is None else os.fsencode(journal),
        byref(handle),
    )
    if result == -errno.ENOENT:
        raise Refusal(
            "no-driver-table",
            f"this mgpud has no table for the driver {driver}",
            "try simulated GPUs: mgpu up --sim v100-16:2",
        )
    if result == -errno.EPROTO:
        raise Refusal(
            "foreign-journal",
            f"the journal in {journal} is of another version of mgpu, or damaged",
            "start the mgpud that wrote it, or end all containers that hold a GPU, remove that folder and start anew",
        )
    if result == -errno.EPROTONOSUPPORT:
        raise Refusal(
            "unknown-driver-version",
            f"driver {printable(version)} is none of those whose interface is known: "
            f"{lib.mgpu_rm_known().decode()} and later ones of each branch",
            "install one of them, or set driver_table in node.toml to the branch it is like",
        )
    _checked(result)
    try:
        yield Engine(lib, handle)
    finally:
        lib.mgpu_engine_close(handle)
