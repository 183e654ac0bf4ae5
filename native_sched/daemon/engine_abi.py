"""What engine.h declares, as ctypes has it: structs, enums, and the signatures of the library's functions."""

from ctypes import (
    POINTER,
    Structure,
    c_char,
    c_char_p,
    c_int,
    c_int32,
    c_uint8,
    c_uint32,
    c_uint64,
    c_void_p,
)
from enum import IntEnum

ABI = 15
MAX_CARDS = 32
MAX_PROCESSES = 1024


class NodeKind(IntEnum):
    """What a device node stands for (enum node_kind)."""

    CTL, CARD, UVM = range(3)


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

    SUSPENDABLE, HIDDEN, REFUSED = range(3)


class TenantClass(IntEnum):
    """enum mgpu_class."""

    ONLINE, OFFLINE = range(2)


class Why(IntEnum):
    """enum mgpu_why: why a tenant's work is off the card."""

    NONE, PREEMPTED, SLICE, QUOTA, HOLD, IDLE, FAILED, PAUSED, EVICTION = range(9)


class EventKind(IntEnum):
    """enum mgpu_sched_kind."""

    ADDED, REMOVED, WORK, IDLE, SUSPEND, SUSPENDED, RESUME, RUNNING, DRAIN, DRAINED = range(10)


class Refused(IntEnum):
    """enum mgpu_refused: what mgpu itself refuses a tenant's calls for."""

    MEMORY, CARD, CLASS, HANDLE, SCHEDULING, UNSUPPORTED, FORM, PERMISSION, SHARE = range(9)


class CardMemory(Structure):
    """struct mgpu_card_memory: one card's memory over all tenants, and the calls that wait for some of it."""

    _fields_ = [
        ("total_bytes", c_uint64),
        ("taken_bytes", c_uint64),
        ("used_bytes", c_uint64),
        ("unreported_bytes", c_uint64),
        ("reclaimable_bytes", c_uint64),
        ("demanded_bytes", c_uint64),
        ("demands", c_uint32),
        ("restorations", c_uint32),
    ]


class MemoryKind(IntEnum):
    """enum mgpu_memory: what a tenant's memory is to the others on its cards."""

    UNSHARED, ONLINE, KEPT, RECLAIMABLE = range(4)


class Without(IntEnum):
    """enum mgpu_without: what the scheduler does without on a card."""

    DISABLE_CHANNELS, TIMESLICES, GROUP_IDS, USERD, ENGINE_STATUS, UTILIZATION = range(6)


class Chip(Structure):
    """struct mgpu_chip: what is known of a card's chip.

    name, header: empty where nothing is. has_get: its USERD shows what is fetched, where the class of the
    channel has the word.
    """

    name: bytes
    header: bytes
    has_get: int
    _fields_ = [("name", c_char * 16), ("header", c_char * 32), ("has_get", c_uint32)]


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
        ("video_ns", c_uint64),
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
Bounds = c_uint64 * (LATENCY_BUCKETS - 1)


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


SIGNATURES: dict[str, tuple[list[object], object]] = {
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
