"""The scheduler and its simulator (sched_sim/) for Python: ctypes declarations and thin wrappers. Times in
ns.
"""

import ctypes
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from ctypes import Structure, byref, c_bool, c_char_p, c_int, c_int64, c_uint8, c_uint32, c_uint64, c_void_p
from pathlib import Path
from types import TracebackType

REPOSITORY = Path(__file__).resolve().parents[2]
CORE = REPOSITORY / "native_sched" / "core"
SIMULATOR = Path(__file__).with_name("sched_sim")
SOURCES = [
    *sorted(CORE.glob("*.c")),
    *(SIMULATOR / name for name in ("sim.c", "check.c", "report.c", "scenario.c")),
]
C_FLAGS = ["-std=gnu11", "-g", "-Wall", "-Wextra", "-Werror", f"-I{CORE}"]

US = 1000
MS = 1000 * US
S = 1000 * MS
NEVER = 2**64 - 1
ENDLESS = 2**64 - 1
ONLINE, OFFLINE = 0, 1
NATIVE, FIXED, GUARANTEED = 0, 1, 2
WATCH_NONE, WATCH_SLOW, WATCH_FAST = 0, 1, 2
WHY_NONE, WHY_PREEMPTED, WHY_HOLD, WHY_QUOTA, WHY_SLICE, WHY_IDLE, WHY_FAILED, WHY_PAUSED = range(8)
WHY_EVICTION = 8
LOG = 1 << 12


class Config(Structure):
    _fields_ = [
        (name, c_uint64)
        for name in (
            "hold_ns",
            "offline_slice_ns",
            "online_slice_ns",
            "period_ns",
            "linger_ns",
            "wakeup_granularity_ns",
        )
    ]


class Entity(Structure):
    _fields_ = [("id", c_uint64), ("class_id", c_int), ("cards", c_uint32), ("quota_percent", c_uint32)]


class Decision(Structure):
    _fields_ = [("id", c_uint64), ("run", c_bool)]


class State(Structure):
    _fields_ = [
        *((name, c_bool) for name in ("enabled", "confirmed", "busy", "throttled")),
        ("why", c_int),
        *((name, c_uint64) for name in ("run_ns", "suspended_ns", "preemptions", "vruntime_ns")),
        ("budget_ns", c_int64),
    ]


class Span(Structure):
    _fields_ = [("min_ns", c_uint64), ("max_ns", c_uint64)]


class Options(Structure):
    _fields_ = [
        ("order", Span),
        ("confirm", Span),
        ("detect", Span),
        ("starve_ns", c_uint64),
        ("fail_percent", c_uint32),
        ("decide_max", c_uint32),
    ]


class Report(Structure):
    _fields_ = [
        *((name, c_uint64) for name in ("run_ns", "slot_ns", "open_ns", "switches")),
        ("excess_ns", c_int64),
        ("deficit_ns", c_int64),
    ]


class LoggedDecision(Structure):
    _fields_ = [("at", c_uint64), ("id", c_uint64), ("run", c_uint32)]


def config(**changes: int) -> Config:
    """The defaults with some fields changed."""
    made = Config(100 * MS, 10 * MS, 5 * MS, 100 * MS, 50 * MS, 1 * MS)
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def declare(library: ctypes.CDLL) -> ctypes.CDLL:
    """Tell ctypes what is longer than an int."""
    library.sched_run_ns.restype = c_uint64
    library.sched_decide.restype = c_bool
    library.sim_new.restype = c_void_p
    library.sim_error.restype = c_char_p
    library.sim_now.restype = c_uint64
    library.sim_log.restype = c_uint64
    return library


class Simulation(AbstractContextManager["Simulation"]):
    """Simulated cards and tenants; orders take 80 to 200 us unless told otherwise. A pointer to it is also
    one to its scheduler, which a test may drive by hand instead.
    """

    def __init__(self, library: ctypes.CDLL, settings: Config | None = None, **options: int | Span) -> None:
        self.library = library
        chosen = Options(
            order=Span(80 * US, 200 * US), detect=Span(0, 100 * US), confirm=Span(0, 10 * US), decide_max=64
        )
        for name, value in options.items():
            setattr(chosen, name, value)
        self.pointer = c_void_p(library.sim_new(byref(settings or config()), byref(chosen)))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.library.sim_free(self.pointer)

    @property
    def now(self) -> int:
        return int(self.library.sim_now(self.pointer))

    def policy(self, policy: int, cards: Iterable[int] = (0,)) -> None:
        for card in cards:
            assert self.library.sim_policy(self.pointer, c_uint32(card), c_int(policy)) == 0

    def add(
        self, id: int, class_id: int, *, cards: int = 1, quota: int = 1, work: int = ENDLESS, pause: int = 0
    ) -> None:
        """A tenant; without `work` it is busy for ever."""
        error = self.library.sim_add(
            self.pointer,
            c_uint64(id),
            c_uint32(class_id),
            c_uint32(cards),
            c_uint32(quota),
            c_uint64(work),
            c_uint64(pause),
        )
        assert error == 0, error

    def work(self, id: int, work: int, pause: int = 0, card: int = 0) -> None:
        assert (
            self.library.sim_work(
                self.pointer, c_uint64(id), c_uint32(card), c_uint64(work), c_uint64(pause)
            )
            == 0
        )

    def change(self, id: int, class_id: int, *, cards: int = 1, quota: int = 1) -> None:
        error = self.library.sim_change(
            self.pointer, c_uint64(id), c_uint32(class_id), c_uint32(cards), c_uint32(quota)
        )
        assert error == 0, error

    def remove(self, id: int) -> None:
        assert self.library.sim_remove(self.pointer, c_uint64(id)) == 0

    def pause(self, id: int, paused: bool = True) -> None:
        assert self.library.sim_pause(self.pointer, c_uint64(id), c_bool(paused)) == 0

    def expect(self, shares: dict[int, float]) -> None:
        """Measure what each has above and below these shares (0..1)."""
        for id, share in shares.items():
            self.library.sim_expect(self.pointer, c_uint64(id), c_uint64(round(share * 1e6)))

    def run(self, duration: int) -> None:
        failed = self.library.sim_run(self.pointer, c_uint64(self.now + duration))
        assert not failed, self.library.sim_error(self.pointer).decode()

    def measure(self) -> None:
        self.library.sim_measure(self.pointer)

    def report(self, id: int) -> Report:
        made = Report()
        self.library.sim_report(self.pointer, c_uint64(id), byref(made))
        return made

    def shares(self, ids: Sequence[int]) -> list[float]:
        """Percent of the time that was open to each one's class, switch-in included."""
        reports = [self.report(id) for id in ids]
        return [100 * report.slot_ns / report.open_ns for report in reports]

    def decisions(self) -> list[tuple[int, int, bool]]:
        """(when, whom, run), the last ones if there were very many."""
        log = (LoggedDecision * LOG)()
        count = int(self.library.sim_log(self.pointer, log))
        assert count <= LOG
        return [(entry.at, entry.id, bool(entry.run)) for entry in log[:count]]


class ByHand(AbstractContextManager["ByHand"]):
    """A scheduler whose events the test gives itself. `now` is the test's to move."""

    def __init__(self, library: ctypes.CDLL, settings: Config | None = None) -> None:
        self.library = library
        self.owner = Simulation(library, settings)
        self.pointer = self.owner.pointer
        self.now = self.owner.now
        self.wake_at = NEVER

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.owner.__exit__(kind, error, traceback)

    def policy(self, card: int, policy: int) -> int:
        return int(self.library.sched_card_policy(self.pointer, c_uint32(card), c_int(policy)))

    def _configure(self, call: str, id: int, class_id: int, cards: int, quota: int) -> int:
        entity = Entity(id, class_id, cards, quota)
        return int(getattr(self.library, call)(self.pointer, c_uint64(self.now), byref(entity)))

    def add(self, id: int, class_id: int, cards: int = 1, quota: int = 1) -> int:
        return self._configure("sched_add", id, class_id, cards, quota)

    def change(self, id: int, class_id: int, cards: int = 1, quota: int = 1) -> int:
        return self._configure("sched_change", id, class_id, cards, quota)

    def configure(self, settings: Config) -> int:
        return int(self.library.sched_configure(self.pointer, c_uint64(self.now), byref(settings)))

    def remove(self, id: int) -> int:
        return int(self.library.sched_remove(self.pointer, c_uint64(self.now), c_uint64(id)))

    def pause(self, id: int, paused: bool = True) -> int:
        return int(self.library.sched_pause(self.pointer, c_uint64(self.now), c_uint64(id), c_bool(paused)))

    def drain(self, id: int, until: int) -> int:
        return int(self.library.sched_drain(self.pointer, c_uint64(self.now), c_uint64(id), c_uint64(until)))

    def _work(self, call: str, id: int, card: int, since: int | None) -> int:
        at = self.now if since is None else since
        return int(
            getattr(self.library, call)(
                self.pointer, c_uint64(self.now), c_uint64(id), c_uint32(card), c_uint64(at)
            )
        )

    def seen(self, id: int, card: int = 0, since: int | None = None) -> int:
        return self._work("sched_work_seen", id, card, since)

    def done(self, id: int, card: int = 0, since: int | None = None) -> int:
        return self._work("sched_work_done", id, card, since)

    def carried_out(self, id: int, running: bool) -> int:
        return int(
            self.library.sched_applied(self.pointer, c_uint64(self.now), c_uint64(id), c_bool(running))
        )

    def failed(self, id: int, running: bool) -> int:
        return int(
            self.library.sched_failed(self.pointer, c_uint64(self.now), c_uint64(id), c_bool(running))
        )

    def decide(self, room: int = 64) -> list[tuple[int, bool]]:
        """[(whom, run)]; wake_at is set."""
        out = (Decision * 64)()
        n, wake_at = c_uint32(), c_uint64()
        self.more = bool(
            self.library.sched_decide(
                self.pointer, c_uint64(self.now), out, c_uint32(room), byref(n), byref(wake_at)
            )
        )
        self.wake_at = wake_at.value
        return [(decision.id, decision.run) for decision in out[: n.value]]

    def decide_all(self) -> list[tuple[int, bool]]:
        """Decide and carry out until nothing changes; all that was decided."""
        made = []
        while orders := self.decide():
            for id, run in orders:
                assert self.carried_out(id, run) == 0
            made += orders
            assert len(made) < 5000
        return made

    def state(self, id: int) -> State:
        state = State()
        assert self.library.sched_state(self.pointer, c_uint64(id), byref(state)) == 0
        return state

    def watched(self, watched: bool, card: int = 0) -> None:
        self.library.sched_watched(self.pointer, c_uint64(self.now), c_uint32(card), c_bool(watched))

    def run_ns(self, id: int) -> int:
        return int(self.library.sched_run_ns(self.pointer, c_uint64(id), c_uint64(self.now)))

    def most_percent(self, id: int) -> int:
        return int(self.library.sched_most_percent(self.pointer, c_uint64(id)))

    def enabled(self) -> set[int]:
        ids = range(1, 100)
        state = State()
        return {
            id
            for id in ids
            if self.library.sched_state(self.pointer, c_uint64(id), byref(state)) == 0 and state.enabled
        }

    def watch(self, card: int = 0) -> int:
        return int(self.library.sched_watch(self.pointer, c_uint32(card)))


def scenario(library: ctypes.CDLL, choices: bytes) -> tuple[int, str]:
    """A random life of cards: (events, what did not hold)."""
    events, error = c_uint64(), ctypes.create_string_buffer(256)
    data = (c_uint8 * len(choices)).from_buffer_copy(choices)
    library.sim_scenario(data, c_uint32(len(choices)), byref(events), error)
    return events.value, error.value.decode()
