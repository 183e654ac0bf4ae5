"""What the page shows of the node: what mgpud tells, judged as the commands judge it."""

import json
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from mgpu_cli import client, frame, health, logs, names, render
from mgpu_cli.render import Container
from mgpu_cli.state import StateDir
from mgpu_cli.timeline import account
from mgpu_cli.timeline.account import Event
from mgpu_cli.timeline.collect import Collector
from mgpu_cli.web.columns import COLUMNS, columns
from oci_specs.refusal import Refusal, printable

# However many look, mgpud is asked this seldom.
AGE_S = 0.5
# Of the timeline that is shown, and of the events that it is drawn from.
SHOWN_S, KEPT_S, KEPT_EVENTS = 30, 60, 1 << 16
COLUMN_NS = SHOWN_S * render.NS_PER_S // COLUMNS
LOG_LINES, STORY_LINES = 2000, 100
_HEAD = frozenset({"time", "level", "event", "container", "pod", "namespace", "name"})


class View:
    """Asks when it is looked at; what was asked for one is told to all who look then."""

    def __init__(self, state: StateDir, clock: Callable[[], float] = time.monotonic) -> None:
        self._state = state
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: tuple[float, bytes] | None = None
        self._log: tuple[float, list[dict[str, Any]]] | None = None
        self._forget()

    def _forget(self) -> None:
        self._generation: object = None
        self._collector = Collector(self._state.control)
        self._events: deque[Event] = deque()
        self._begin_ns = 0
        self._before: dict[str, Any] | None = None

    def now(self) -> bytes:
        """The node as JSON; where mgpud does not answer, its health alone."""
        with self._lock:
            if self._kept is None or self._clock() - self._kept[0] >= AGE_S:
                shown = json.dumps(self._look()).encode()
                self._kept = self._clock(), shown
            return self._kept[1]

    def log(self, container_id: str) -> bytes:
        """What mgpud logged of a container last, the oldest first."""
        with self._lock:
            if self._log is None or self._clock() - self._log[0] >= AGE_S:
                found = [logs.fields(line) for line in logs.last(self._state, LOG_LINES)]
                self._log = self._clock(), [each for each in found if each]
            own = [each for each in self._log[1] if logs.is_wanted(each, {container_id}, None)]
        return json.dumps([_entry(each) for each in own[-STORY_LINES:]]).encode()

    def _look(self) -> dict[str, Any]:
        judged, mgpud, listing = health.judge(self._state)
        found: dict[str, Any] = {
            "node": socket.gethostname(),
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "health": [each._asdict() for each in judged],
        }
        if mgpud is None or listing is None:
            self._forget()
            return found
        if self._generation != mgpud.get("generation"):
            # Its numbers begin anew.
            self._forget()
            self._generation = mgpud.get("generation")
        try:
            return found | self._serving(listing)
        except Refusal as refusal:
            self._forget()
            found["health"].insert(0, {"state": "failed", "name": "mgpud", "text": refusal.message})
            return found

    def _serving(self, listing: dict[str, Any]) -> dict[str, Any]:
        events = client.ask(self._state.control, "watch", since=0)["events"]
        names.give(events)
        shares = frame.between(self._before or listing, listing)
        self._before = listing
        return {
            "cards": [
                card | {"says": render.card_state(card), "shares": own["containers"]}
                for card, own in zip(listing["cards"], shares["cards"], strict=True)
            ],
            "containers": [
                each | {"label": _label(each), "says": render.state(each)} for each in listing["containers"]
            ],
            "events": [each | {"label": _label(each), "text": printable(each["text"])} for each in events],
            "timeline": self._timeline(listing["containers"]),
        }

    def _timeline(self, containers: list[Container]) -> dict[str, Any]:
        lost = self._collector.lost
        self._collector.meet(containers)
        new = list(self._collector.read())
        if self._collector.lost > lost:
            # Nobody looked for long: what is kept does not lead up to what is new.
            self._events.clear()
            self._begin_ns = new[0].at_ns if new else 0
        self._events.extend(new)
        # At a column's edge, so that what has happened keeps its columns from look to look.
        end_ns = self._collector.now_ns // COLUMN_NS * COLUMN_NS
        start_ns, oldest_ns = (end_ns - seconds * render.NS_PER_S for seconds in (SHOWN_S, KEPT_S))
        while self._events and (len(self._events) > KEPT_EVENTS or self._events[0].at_ns < oldest_ns):
            self._begin_ns = self._events.popleft().at_ns
        present = {each["id"] for each in containers} | {each.grant for each in self._events}
        self._collector.who = {grant: who for grant, who in self._collector.who.items() if grant in present}
        read = account.read(
            self._events,
            self._collector.who,
            begin_ns=self._begin_ns or min([start_ns, *(each.at_ns for each in list(self._events)[:1])]),
            start_ns=start_ns,
            end_ns=end_ns,
        )
        return {"seconds": SHOWN_S, "lanes": columns(read)}


def _label(container: Container) -> str:
    return render.name(container) or container["container_id"][: render.SHORT_ID_CHARS]


def _entry(fields: dict[str, Any]) -> dict[str, str]:
    more = " ".join(f"{name}={value}" for name, value in fields.items() if name not in _HEAD)
    kept = {name: str(fields.get(name, "")) for name in ("time", "level", "event")}
    return kept | {"text": printable(more)}
