"""The native engine as Python sees it: a thin, typed layer over native_sched/engine/engine.h.

Every call crosses the C ABI once and returns; ioctls are served by the engine's own threads, which never take
the interpreter's lock. Failures are OSError with the engine's errno.
"""

import ctypes
import errno
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from ctypes import POINTER, Structure, byref, c_char_p, c_int, c_int32, c_uint8, c_uint32, c_uint64, c_void_p
from enum import IntEnum

from native_sched.daemon.engine_card import Chip, Without
from native_sched.daemon.engine_memory import CardMemory, MemoryKind
from native_sched.daemon.engine_refused import Refused
from oci_specs.refusal import Refusal, printable
from oci_specs.vocabulary import POLICIES

ABI = 15
MAX_CARDS = 32
MAX_PROCESSES = 1024


class NodeKind(IntEnum):
    """What a device node stands for (enum node_kind)."""

    CTL = 0
    CARD = 1
    UVM = 2


NO_INSTANCE = 0xFFFFFFFF


class Card(Structure):
    """struct mgpu_card; sizes in bytes. gpu_instance, compute_instance: NO_INSTANCE for a card as a whole.

    uuid: zeros of an instance, which nvidia-uvm names otherwise. released: not asked before it is added
    again.
    """

    _fields_ = [
        ("index", c_uint32),
        ("minor", c_uint32),
        ("gpu_id", c_uint32),
        ("device_instance", c_uint32),
        ("gpu_instance", c_uint32),
        ("compute_instance", c_uint32),
        ("released", c_uint32),
        ("unused", c_uint32),
        ("memory_bytes", c_uint64),
        ("context_bytes", c_uint64),
        ("copy_context_bytes", c_uint64),
        ("uuid", c_uint8 * 16),
    ]


class Usage(Structure):
    """struct mgpu_usage: one tenant's account on one card, in bytes."""

    _fields_ = [
        ("cap_bytes", c_uint64),
        ("used_bytes", c_uint64),
        ("reserved_bytes", c_uint64),
        ("peak_bytes", c_uint64),
    ]


class Process(Structure):
    """struct mgpu_process: what one process holds on one card; pid in our pid namespace."""

    _fields_ = [("pid", c_int32), ("card", c_uint32), ("used_bytes", c_uint64)]


class TenantState(Structure):
    """struct mgpu_tenant_state: what still hangs on a tenant.

    unsuspendable, unaccounted_bytes: not 0 once it is in violation; refused: RM's status, where REFUSED.
    """

    _fields_ = [
        ("listeners", c_uint32),
        ("files", c_uint32),
        ("objects", c_uint32),
        ("unsuspendable", c_uint32),
        ("refused", c_uint32),
        ("unaccounted_bytes", c_uint64),
        ("parked", c_uint64),
        ("parked_ns", c_uint64),
    ]


class Unsuspendable(IntEnum):
    """enum mgpu_unsuspendable: why a tenant's work goes on that ought to rest."""

    SUSPENDABLE = 0
    HIDDEN = 1
    REFUSED = 2


class TenantClass(IntEnum):
    """enum mgpu_class."""

    ONLINE = 0
    OFFLINE = 1


class Why(IntEnum):
    """enum mgpu_why: why a tenant's work is off the card."""

    NONE = 0
    PREEMPTED = 1
    SLICE = 2
    QUOTA = 3
    HOLD = 4
    IDLE = 5
    FAILED = 6
    PAUSED = 7
    EVICTION = 8


class EventKind(IntEnum):
    """enum mgpu_sched_kind."""

    ADDED = 0
    REMOVED = 1
    WORK = 2
    IDLE = 3
    SUSPEND = 4
    SUSPENDED = 5
    RESUME = 6
    RUNNING = 7
    DRAIN = 8
    DRAINED = 9


class SchedConfig(Structure):
    """struct mgpu_sched_config, in ns; off: not 0 for memory caps alone."""

    _fields_ = [
        ("hold_ns", c_uint64),
        ("poll_fast_ns", c_uint64),
        ("poll_slow_ns", c_uint64),
        ("quiet_ns", c_uint64),
        ("off", c_uint64),
    ]


class SchedState(Structure):
    """struct mgpu_sched_state; run_ns and suspended_ns count from the tenant's start."""

    _fields_ = [
        ("enabled", c_uint32),
        ("busy", c_uint32),
        ("throttled", c_uint32),
        ("why", c_uint32),
        ("run_ns", c_uint64),
        ("suspended_ns", c_uint64),
        ("preemptions", c_uint64),
    ]


class SchedEvent(Structure):
    """struct mgpu_sched_event; instants are CLOCK_MONOTONIC."""

    _fields_ = [
        ("at_ns", c_uint64),
        ("since_ns", c_uint64),
        ("tenant", c_uint64),
        ("kind", c_uint32),
        ("card", c_uint32),
        ("why", c_uint32),
        ("pad", c_uint32),
    ]


MAX_EVENTS = 8192
ALL_CARDS = 0xFFFFFFFF  # SchedEvent.card
LATENCY_BUCKETS = 10
_Bounds = c_uint64 * (LATENCY_BUCKETS - 1)


class Stats(Structure):
    """struct mgpu_stats: counts since the start; preemption[i]: those within latency_bounds_ns[i]."""

    _fields_ = [
        ("turns", c_uint64),
        ("polls", c_uint64),
        ("suspend_failures", c_uint64),
        ("resume_failures", c_uint64),
        ("preemption", c_uint64 * LATENCY_BUCKETS),
        ("preemption_sum_ns", c_uint64),
        ("calls", c_uint64),
        ("listeners", c_uint64),
        ("refused", c_uint64 * len(Refused)),
        ("audit_mismatches", c_uint64 * MAX_CARDS),
        ("parked", c_uint64 * LATENCY_BUCKETS),
        ("parked_ns", c_uint64),
    ]


class Pulse(Structure):
    """struct mgpu_pulse: turns of the scheduler's thread, and how long the mediator has been at one call."""

    _fields_ = [("turns", c_uint64), ("serving_ns", c_uint64)]


_SIGNATURES: dict[str, tuple[list[object], object]] = {
    "mgpu_engine_abi": ([], c_uint32),
    "mgpu_rm_known": ([], c_char_p),
    "mgpu_engine_rm_table": ([c_void_p], c_uint32),
    "mgpu_engine_open": ([c_char_p, c_char_p, c_char_p, c_char_p, POINTER(c_void_p)], c_int),
    "mgpu_engine_close": ([c_void_p], None),
    "mgpu_engine_context_bytes": ([c_void_p, c_uint32, c_uint32, POINTER(c_uint64)], c_int),
    "mgpu_engine_add_card": ([c_void_p, POINTER(Card)], c_int),
    "mgpu_engine_release_card": ([c_void_p, c_uint32], c_int),
    "mgpu_engine_event_fd": ([c_void_p], c_int),
    "mgpu_engine_driver_alive": ([c_void_p], c_int),
    "mgpu_tenant_add": ([c_void_p, c_uint64], c_int),
    "mgpu_tenant_grant": ([c_void_p, c_uint64, c_uint32, c_uint64], c_int),
    "mgpu_tenant_whole": ([c_void_p, c_uint64], c_int),
    "mgpu_tenant_capabilities": ([c_void_p, c_uint64, c_uint32], c_int),
    "mgpu_tenant_move": ([c_void_p, c_uint64, c_uint32, c_uint32], c_int),
    "mgpu_tenant_add_node": ([c_void_p, c_uint64, c_uint64, c_uint64, c_uint32, c_uint32], c_int),
    "mgpu_tenant_space": ([c_void_p, c_uint64, c_uint64], c_int),
    "mgpu_evict_wait": ([c_void_p, c_uint32], c_int),
    "mgpu_tenant_memory": ([c_void_p, c_uint64, c_uint32], c_int),
    "mgpu_tenant_reclaim": ([c_void_p, c_uint64, c_uint32, POINTER(c_uint64)], c_int),
    "mgpu_tenant_drain": ([c_void_p, c_uint64, c_uint64], c_int),
    "mgpu_card_memory": ([c_void_p, c_uint32, POINTER(CardMemory)], c_int),
    "mgpu_tenant_usage": ([c_void_p, c_uint64, c_uint32, POINTER(Usage)], c_int),
    "mgpu_tenant_processes": ([c_void_p, c_uint64, POINTER(Process), c_uint32], c_int),
    "mgpu_tenant_state": ([c_void_p, c_uint64, POINTER(TenantState)], c_int),
    "mgpu_tenant_remove": ([c_void_p, c_uint64], c_int),
    "mgpu_sched_configure": ([c_void_p, POINTER(SchedConfig)], c_int),
    "mgpu_card_policy": ([c_void_p, c_uint32, c_uint32], c_int),
    "mgpu_tenant_schedule": ([c_void_p, c_uint64, c_uint32, c_uint32], c_int),
    "mgpu_tenant_pause": ([c_void_p, c_uint64, c_uint32], c_int),
    "mgpu_tenant_sched": ([c_void_p, c_uint64, POINTER(SchedState)], c_int),
    "mgpu_sched_events": (
        [c_void_p, c_uint64, POINTER(SchedEvent), c_uint32, POINTER(c_uint64), POINTER(c_uint64)],
        c_int,
    ),
    "mgpu_card_without": ([c_void_p, c_uint32, POINTER(c_int32)], c_int),
    "mgpu_card_chip": ([c_void_p, c_uint32, POINTER(Chip)], c_int),
    "mgpu_sched_realtime": ([c_void_p], c_int),
    "mgpu_listener_add": ([c_void_p, c_uint64, c_int, c_uint64], c_int),
    "mgpu_recovered": ([c_void_p], c_int),
    "mgpu_engine_guarded": ([c_void_p], c_int),
    "mgpu_engine_stats": ([c_void_p, POINTER(Stats)], c_int),
    "mgpu_engine_pulse": ([c_void_p, POINTER(Pulse)], c_int),
    "mgpu_tenant_refused": ([c_void_p, c_uint64, POINTER(c_uint64)], c_int),
}


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

    def add_card(self, card: Card) -> None:
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
        found = ("video" in names) | ("graphics" in names) << 1  # enum rm_capability
        _checked(self._lib.mgpu_tenant_capabilities(self._handle, tenant, found))

    def move(self, tenant: int, old: int, new: int) -> None:
        """OSError(EBUSY) while it has something on the old card; EAGAIN while a call of it is under way."""
        _checked(self._lib.mgpu_tenant_move(self._handle, tenant, old, new))

    def add_node(self, tenant: int, dev: int, ino: int, kind: NodeKind, minor: int) -> None:
        _checked(self._lib.mgpu_tenant_add_node(self._handle, tenant, dev, ino, kind, minor))

    def pid_space(self, tenant: int, space: int) -> None:
        """Where its processes are, as process_id.space() names it."""
        _checked(self._lib.mgpu_tenant_space(self._handle, tenant, space))

    def evict_wait(self, wait_ms: int) -> None:
        """How long calls of online tenants wait for memory of reclaimable ones; 0: not at all."""
        _checked(self._lib.mgpu_evict_wait(self._handle, wait_ms))

    def memory(self, tenant: int, kind: MemoryKind) -> None:
        _checked(self._lib.mgpu_tenant_memory(self._handle, tenant, kind))

    def reclaim(self, tenant: int, *, closed: bool, room_bytes: Mapping[int, int] | None = None) -> None:
        """Whether it gets memory, and what is reserved for it by card; OSError(ENOSPC) without room."""
        room = (c_uint64 * MAX_CARDS)()
        for card, size in (room_bytes or {}).items():
            room[card] = size
        _checked(self._lib.mgpu_tenant_reclaim(self._handle, tenant, closed, room))

    def drain(self, tenant: int, until_ns: int) -> None:
        """Lets a tenant that is evicted run beside online work until then (CLOCK_MONOTONIC); 0: no longer."""
        _checked(self._lib.mgpu_tenant_drain(self._handle, tenant, until_ns))

    def card_memory(self, card: int) -> CardMemory:
        out = CardMemory()
        _checked(self._lib.mgpu_card_memory(self._handle, card, byref(out)))
        return out

    def usage(self, tenant: int, card: int) -> Usage:
        out = Usage()
        _checked(self._lib.mgpu_tenant_usage(self._handle, tenant, card, byref(out)))
        return out

    def processes(self, tenant: int) -> list[Process]:
        out = (Process * MAX_PROCESSES)()
        count = _checked(self._lib.mgpu_tenant_processes(self._handle, tenant, out, MAX_PROCESSES))
        return list(out[:count])

    def state(self, tenant: int) -> TenantState:
        out = TenantState()
        _checked(self._lib.mgpu_tenant_state(self._handle, tenant, byref(out)))
        return out

    def remove_tenant(self, tenant: int) -> None:
        """OSError(EBUSY) while a listener, an open file or a poll of it is left; event_fd tells when."""
        _checked(self._lib.mgpu_tenant_remove(self._handle, tenant))

    def configure(self, config: SchedConfig) -> None:
        _checked(self._lib.mgpu_sched_configure(self._handle, byref(config)))

    def card_policy(self, card: int, policy: str) -> None:
        _checked(self._lib.mgpu_card_policy(self._handle, card, POLICIES.index(policy)))

    def schedule(self, tenant: int, tenant_class: TenantClass, quota_percent: int) -> None:
        """Hands the tenant to the scheduler, or changes its class and its share of each card (1 to 100)."""
        _checked(self._lib.mgpu_tenant_schedule(self._handle, tenant, tenant_class, quota_percent))

    def pause(self, tenant: int, paused: bool) -> None:
        """Suspends its work because its container is frozen, or ends that; OSError(ENOENT): not scheduled."""
        _checked(self._lib.mgpu_tenant_pause(self._handle, tenant, paused))

    def sched(self, tenant: int) -> SchedState:
        out = SchedState()
        _checked(self._lib.mgpu_tenant_sched(self._handle, tenant, byref(out)))
        return out

    def events(self, since: int) -> tuple[list[SchedEvent], int, int]:
        """What happened since event number `since`, the number to go on with, and how many were forgotten."""
        out = (SchedEvent * MAX_EVENTS)()
        after, lost = c_uint64(), c_uint64()
        count = _checked(
            self._lib.mgpu_sched_events(self._handle, since, out, MAX_EVENTS, byref(after), byref(lost))
        )
        return list(out[:count]), after.value, lost.value

    def without(self, card: int) -> dict[Without, int]:
        """What the scheduler does without there: RM's status, or a negative errno."""
        found = (c_int32 * len(Without))()
        _checked(self._lib.mgpu_card_without(self._handle, card, found))
        return {what: found[what] for what in Without if found[what]}

    def chip(self, card: int) -> Chip:
        found = Chip()
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
        return tuple(_Bounds.in_dll(self._lib, "mgpu_latency_bounds_ns"))

    @property  # of Stats.parked
    def parked_bounds_ns(self) -> tuple[int, ...]:
        return tuple(_Bounds.in_dll(self._lib, "mgpu_parked_bounds_ns"))

    def stats(self) -> Stats:
        out = Stats()
        _checked(self._lib.mgpu_engine_stats(self._handle, byref(out)))
        return out

    def pulse(self) -> Pulse:
        """Has the scheduler's thread turn once more: if it has not by the next pulse, it is stuck."""
        out = Pulse()
        _checked(self._lib.mgpu_engine_pulse(self._handle, byref(out)))
        return out

    def refused(self, tenant: int) -> tuple[int, ...]:
        """How many of the tenant's calls mgpu refused, by Refused."""
        out = (c_uint64 * len(Refused))()
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
    for name, (arguments, result) in _SIGNATURES.items():
        function = getattr(lib, name)
        function.argtypes = arguments
        function.restype = result
    if lib.mgpu_engine_abi() != ABI:
        raise OSError(f"{library} speaks ABI {lib.mgpu_engine_abi()}, this mgpud {ABI}: reinstall mgpu")
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
