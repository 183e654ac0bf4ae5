"""Whether mgpud's threads still turn, and what `health` says of it."""

import asyncio
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from native_sched.daemon.control.server import Peer, Reply, Verb
from native_sched.daemon.engine import Engine
from native_sched.daemon.log import LOG, Log
from native_sched.daemon.node import sd_notify

PERIOD_S = 2.0
# Longer than any call of a driver's, so that what is reported is stuck and not slow.
STUCK_S = 10.0
_NS_PER_S = 1e9


@dataclass
class Thread:
    """What is known of a thread, or of the mediator's threads together. stuck_s: 0 while it turns."""

    name: str
    stuck_s: float = 0.0
    told: bool = False

    @property
    def stuck(self) -> bool:
        return self.stuck_s >= STUCK_S


class Watchdog:
    """A thread that looks at the others: it has each of them do something and sees by the next look whether
    it did.

    Time is counted in looks, so that a stop of the whole process (SIGSTOP, a suspended machine) is nobody's
    fault.
    """

    def __init__(
        self,
        engine: Engine,
        loop: asyncio.AbstractEventLoop,
        tick: Callable[[], None] = lambda: None,
        log: Log = LOG,
    ) -> None:
        """tick is called in the event loop at each look."""
        self._engine = engine
        self._loop = loop
        self._tick = tick
        self._log = log
        self.scheduler = Thread("scheduler")
        self.mediator = Thread("mediator")
        self.daemon = Thread("daemon")
        self.turns = -1
        self.looks = 0
        self.no_calls_s = 0.0
        self._calls = -1
        self.driver_alive = True
        self._ticked = True
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)

    def start(self) -> None:
        """Called once mgpud serves."""
        sd_notify.tell(sd_notify.READY)
        self._thread.start()

    def stop(self) -> None:
        sd_notify.tell(sd_notify.ENDING)
        self._ending.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ending.wait(PERIOD_S):
            try:
                self.look()
                if self.turning:
                    sd_notify.tell(sd_notify.ALIVE)
            except Exception as error:  # a fault of ours: it goes on looking
                self._log.unexpected({"exception": error})

    @property
    def turning(self) -> bool:
        """Whether mgpud does its work, as far as it can: what does not is better ended.

        A call that takes for ever may be its own caller's doing, which waits in it itself. Only when no
        tenant's call has come to an end for as long is it the mediator.
        """
        mediator_stuck = self.mediator.stuck and self.no_calls_s >= STUCK_S
        return not (self.scheduler.stuck or self.daemon.stuck or mediator_stuck)

    def look(self) -> None:
        pulse = self._engine.pulse()
        self._judge(self.scheduler, pulse.turns != self.turns)
        self.turns = pulse.turns
        self._judge(self.mediator, pulse.serving_ns < PERIOD_S * _NS_PER_S)
        calls = self._engine.stats().calls
        self.no_calls_s = self.no_calls_s + PERIOD_S if calls == self._calls else 0.0
        self._calls = calls
        self._judge(self.daemon, self._ticked)
        self.looks += 1
        if self.driver_alive and not self._engine.driver_alive:
            self.driver_alive = False
            self._log.error("driver-lost", why="it no longer answers; nothing new is admitted")
        if self._ticked:
            self._ticked = False
            try:
                self._loop.call_soon_threadsafe(self._beat)
            except RuntimeError:  # the loop is closed: mgpud ends
                pass

    def _beat(self) -> None:
        self._ticked = True
        self._tick()

    def _judge(self, thread: Thread, turned: bool) -> None:
        thread.stuck_s = 0.0 if turned else thread.stuck_s + PERIOD_S
        if thread.stuck and not thread.told:
            self._log.error("thread-stuck", thread=thread.name, seconds=thread.stuck_s)
        elif not thread.stuck and thread.told:
            self._log.warning("thread-turns-again", thread=thread.name)
        thread.told = thread.stuck

    def report(self) -> dict[str, Any]:
        """The members that `health` has beside what it always had."""
        return {
            "scheduler_turns": max(0, self.turns),
            "scheduler_stuck_seconds": self.scheduler.stuck_s,
            "mediator_stuck_seconds": self.mediator.stuck_s,
            "errors": [asdict(entry) for entry in self._log.recent()],
            "log_left_out": self._log.left_out,
        }


def with_threads(health: Verb, watchdog: Watchdog) -> Verb:
    """The verb `health`, which tells of the threads too."""

    def answer(message: Mapping[str, Any], peer: Peer) -> Reply:
        return {**health(message, peer), **watchdog.report()}

    return answer
