"""mgpud's log: one line an event, as key=value pairs or as JSON, that no tenant can break or flood.

A user who may name a container can put anything into its name, and make as many of them as it likes. So
values are escaped and cut, and lines are limited by token buckets: each event has one, and each
container one for each event, which is smaller, so that a noisy container does not silence the others. The
next line of an event says how many were left out before it.
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import asyncio

Level = Literal["info", "warning", "error"]
Format = Literal["text", "json"]

VALUE_MAX_CHARS = 200
# An event of one container: ten at once, then one a minute. Of all: fifty, then one in five seconds, 26 MB a
# day of lines that are as long as they can be.
TENANT_BURST, TENANT_PER_S = 10, 1 / 60
EVENT_BURST, EVENT_PER_S = 50, 0.2
# Buckets of containers that are kept; one that is forgotten starts full again, and its event's bucket still
# holds.
_TENANTS_MAX = 1024
_RECENT = 8
_BARE = re.compile(r"[A-Za-z0-9_./:@%+-]+")


@dataclass(frozen=True)
class Entry:
    """A warning or an error that was logged. text: its fields, as they stand on its line."""

    time: str
    level: Level
    event: str
    text: str


class Bucket:
    """Lets `burst` through at once and `per_s` from then on."""

    def __init__(self, burst: int, per_s: float, now_s: float) -> None:
        self._burst = burst
        self._per_s = per_s
        self._tokens = float(burst)
        self._at_s = now_s
        self.left_out = 0

    def has_one(self, now_s: float) -> bool:
        self._tokens = min(self._burst, self._tokens + (now_s - self._at_s) * self._per_s)
        self._at_s = now_s
        return self._tokens >= 1

    def take(self) -> None:
        self._tokens -= 1


def value(of: object) -> object:
    """As it is logged: a number or a truth value as it is, all else as text that is cut."""
    if of is None or isinstance(of, int | float):
        return of
    text = str(of)
    return text if len(text) <= VALUE_MAX_CHARS else text[:VALUE_MAX_CHARS] + "..."


def _quoted(of: object) -> str:
    """JSON in ASCII: no line separator of any kind, control character or lone surrogate is left in it."""
    return json.dumps(of).replace("\x7f", "\\u007f")


def _pair(name: str, of: object) -> str:
    text = of if isinstance(of, str) else _quoted(of)
    return f"{name}={text if _BARE.fullmatch(text) else _quoted(of)}"


class Log:
    """Thread safe. Fields named `container` say whose doing the event is."""

    def __init__(
        self,
        fd: int | None = None,
        *,
        form: Format = "text",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fd = sys.stderr.fileno() if fd is None else fd
        self.form: Format = form
        self._clock = clock
        self._lock = threading.Lock()
        self._events: dict[str, Bucket] = {}
        self._tenants: OrderedDict[tuple[str, str], Bucket] = OrderedDict()
        self._recent: deque[Entry] = deque(maxlen=_RECENT)
        self._torn = False
        # Called with every event that is logged and its fields, under the lock.
        self.heard: Callable[[str, Mapping[str, object]], object] = lambda event, fields: None
        # Whose container that is, as further fields: an id says nothing to people.
        self.whose: Callable[[object], Mapping[str, object]] = lambda container: {}
        self.left_out = 0  # lines, by the buckets or because they could not be written

    def info(self, event: str, **fields: object) -> None:
        self._log("info", event, fields)

    def warning(self, event: str, **fields: object) -> None:
        self._log("warning", event, fields)

    def error(self, event: str, **fields: object) -> None:
        self._log("error", event, fields)

    def unexpected(self, context: Mapping[str, Any]) -> None:
        """What an event loop's exception handler is given: a fault of ours, with where it was raised."""
        import traceback

        error = context.get("exception")
        at = traceback.extract_tb(error.__traceback__)[-1:] if isinstance(error, BaseException) else []
        where = [f"{os.path.basename(frame.filename)}:{frame.lineno}" for frame in at]
        self._log("error", "fault", {"what": repr(error or context["message"]), "where": "".join(where)})

    def ended(self, task: asyncio.Task[Any]) -> None:
        """A done callback for tasks without a waiter: an error that ended one is logged."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self.unexpected({"exception": error})

    def recent(self) -> list[Entry]:
        """The last warnings and errors, the latest last."""
        with self._lock:
            return list(self._recent)

    def _log(self, level: Level, event: str, fields: dict[str, object]) -> None:
        with self._lock:
            left_out = self._let_through(event, fields.get("container"))
            if left_out is None:
                self.left_out += 1
                return
            if "container" in fields and "pod" not in fields:
                fields = {**fields, **self.whose(fields["container"])}
            self.heard(event, fields)
            shown = {name: value(of) for name, of in fields.items()}
            if left_out:
                shown["left_out"] = left_out
            at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
            head: dict[str, object] = {"time": at, "level": level, "event": event}
            text = " ".join(_pair(*field) for field in shown.items())
            if level != "info":
                self._recent.append(Entry(at, level, event, text))
            if self.form == "json":
                self._write(_quoted(head | shown))
            else:
                self._write(" ".join([*(_pair(*field) for field in head.items()), text]).rstrip())

    def _let_through(self, event: str, container: object) -> int | None:
        """How many lines of the event were left out since the last; None: this one is, too."""
        now_s = self._clock()
        ours = self._events.setdefault(event, Bucket(EVENT_BURST, EVENT_PER_S, now_s))
        buckets = [ours]
        if container is not None:
            buckets.append(self._tenant(event, str(container), now_s))
        if not all(bucket.has_one(now_s) for bucket in buckets):
            ours.left_out += 1
            return None
        for bucket in buckets:
            bucket.take()
        left_out, ours.left_out = ours.left_out, 0
        return left_out

    def _tenant(self, event: str, container: str, now_s: float) -> Bucket:
        key = event, container
        if key not in self._tenants:
            while len(self._tenants) >= _TENANTS_MAX:
                self._tenants.popitem(last=False)
            self._tenants[key] = Bucket(TENANT_BURST, TENANT_PER_S, now_s)
        self._tenants.move_to_end(key)
        return self._tenants[key]

    def _write(self, line: str) -> None:
        """In one piece. A full disk or a reader that is gone is no reason to stop serving."""
        data = f"{line}\n".encode("ascii")
        if self._torn:
            data = b"\n" + data
        try:
            self._torn = os.write(self._fd, data) != len(data)
        except OSError:
            self.left_out += 1


# mgpud's own, to stderr.
LOG = Log(2)
