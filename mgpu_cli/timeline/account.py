"""From the scheduler's events to rows: who had work, who had the card."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, cast

from mgpu_cli.timeline.rows import Class, Lane, Mark, MarkKind, Row, Timeline, timeline
from mgpu_cli.timeline.spans import Span, common, union, without

_SHOWN_MARKS = frozenset({"work", "suspend", "suspended", "resume", "running"})
# Reasons that only offline is given: what is left of a container that ended before it was asked for its
# class.
_OFFLINE_WHY = frozenset({"hold", "idle"})


class Event(NamedTuple):
    """One of a timeline reply. since_ns: from when on it held; card None: all of the container's cards."""

    at_ns: int
    since_ns: int
    grant: str
    kind: str
    card: int | None
    why: str


@dataclass(frozen=True)
class Who:
    """What a list reply says of a grant."""

    label: str
    qos: Class
    cards: tuple[int, ...]
    busy: bool = False
    enabled: bool = True
    why: str = ""


class _Off(NamedTuple):
    start_ns: int
    end_ns: int
    why: str


@dataclass
class _Tenant:
    """One grant as it was seen. work: by card; off: when it was suspended; drains: when it was evicted."""

    work: dict[int, list[Span]] = field(default_factory=dict)
    off: list[_Off] = field(default_factory=list)
    work_since: dict[int, int] = field(default_factory=dict)
    off_since: tuple[int, str] | None = None
    drains: list[Span] = field(default_factory=list)
    drain_since: int | None = None
    marks: list[tuple[int, int | None, str]] = field(default_factory=list)
    whys: set[str] = field(default_factory=set)
    known: set[tuple[str, int | None]] = field(default_factory=set)


def read(
    events: Iterable[Event], who: Mapping[str, Who], *, begin_ns: int, start_ns: int, end_ns: int
) -> Timeline:
    """The timeline from start_ns to end_ns.

    begin_ns: where the events begin; what was under way then is known by how it ends. A container of which
    there is no event at all is as `who` has it now.
    """
    tenants: dict[str, _Tenant] = {}
    for event in events:
        _take(tenants.setdefault(event.grant, _Tenant()), event, begin_ns)
    for grant, tenant in tenants.items():
        _end(tenant, end_ns)
        _fill_in(tenant, who.get(grant), begin_ns, end_ns)
    for grant, known in who.items():
        if grant not in tenants:
            tenants[grant] = _as_now(known, begin_ns, end_ns)
    names = {grant: who.get(grant) or _stranger(grant, tenant) for grant, tenant in tenants.items()}
    online = _online_work(tenants, names)
    held = {card: _held(card, spans, tenants, names, end_ns) for card, spans in online.items()}
    rows = [row for grant, tenant in tenants.items() for row in _rows(tenant, names[grant], online, held)]
    marks = [mark for grant, tenant in tenants.items() for mark in _marks(tenant, names[grant])]
    lanes = [_lane(card, known) for known in who.values() for card in known.cards]
    return timeline(rows, marks, lanes=lanes, start_ns=start_ns, end_ns=end_ns)


def _take(tenant: _Tenant, event: Event, begin_ns: int) -> None:
    if event.kind in _SHOWN_MARKS:
        tenant.marks.append((event.at_ns, event.card, event.kind))
    tenant.whys.add(event.why)
    match event.kind:
        case "added":
            tenant.known.add(("off", None))
        case "work" if event.card is not None:
            tenant.work_since.setdefault(event.card, event.at_ns)
        case "idle" if event.card is not None:
            # The first of its events: the work began before them.
            known = ("work", event.card) in tenant.known
            start_ns = tenant.work_since.pop(event.card, event.since_ns if known else begin_ns)
            tenant.work.setdefault(event.card, []).append((start_ns, event.since_ns))
        case "suspended" if tenant.off_since is None:
            tenant.off_since = event.at_ns, event.why
        case "running":
            if tenant.off_since is None and ("off", None) not in tenant.known:
                tenant.off_since = begin_ns, event.why
            _run(tenant, event.at_ns)
        case "drain" if tenant.drain_since is None:
            tenant.drain_since = event.at_ns
        case "drained":
            _drained(tenant, event.at_ns)
        case "removed":
            _end(tenant, event.at_ns)
    if event.kind in ("work", "idle"):
        tenant.known.add(("work", event.card))
    if event.kind in ("suspended", "running"):
        tenant.known.add(("off", None))


def _run(tenant: _Tenant, at_ns: int) -> None:
    if tenant.off_since is not None:
        since_ns, why = tenant.off_since
        tenant.off.append(_Off(since_ns, at_ns, why))
        tenant.off_since = None


def _drained(tenant: _Tenant, at_ns: int) -> None:
    if tenant.drain_since is not None:
        tenant.drains.append((tenant.drain_since, at_ns))
        tenant.drain_since = None


def _end(tenant: _Tenant, at_ns: int) -> None:
    for card, since_ns in tenant.work_since.items():
        tenant.work.setdefault(card, []).append((since_ns, at_ns))
    tenant.work_since = {}
    _run(tenant, at_ns)
    _drained(tenant, at_ns)


def _fill_in(tenant: _Tenant, now: Who | None, begin_ns: int, end_ns: int) -> None:
    """What no event tells of a living container has not changed since the events begin."""
    if now is None:
        return
    for card in now.cards:
        if ("work", card) not in tenant.known and now.busy:
            tenant.work[card] = [(begin_ns, end_ns)]
    if ("off", None) not in tenant.known and not now.enabled:
        tenant.off.append(_Off(begin_ns, end_ns, now.why))


def _as_now(now: Who, begin_ns: int, end_ns: int) -> _Tenant:
    tenant = _Tenant()
    _fill_in(tenant, now, begin_ns, end_ns)
    return tenant


def _stranger(grant: str, tenant: _Tenant) -> Who:
    """A container that ended before a list reply told of it."""
    qos: Class = "offline" if tenant.whys & _OFFLINE_WHY else "unknown"
    return Who(grant, qos, tuple(sorted(tenant.work)))


def _online_work(tenants: Mapping[str, _Tenant], names: Mapping[str, Who]) -> dict[int, list[Span]]:
    found: dict[int, list[Span]] = {}
    for grant, tenant in tenants.items():
        if names[grant].qos == "online":
            for card, spans in tenant.work.items():
                found.setdefault(card, []).extend(spans)
    return {card: union(spans) for card, spans in found.items()}


def _held(
    card: int,
    online: list[Span],
    tenants: Mapping[str, _Tenant],
    names: Mapping[str, Who],
    end_ns: int,
) -> list[Span]:
    """The times in which offline stayed off the card without online work on it."""
    resumed = sorted(
        off.end_ns
        for grant, tenant in tenants.items()
        if names[grant].qos != "online" and card in names[grant].cards
        for off in tenant.off
    )
    found = []
    for (_, idle_ns), (again_ns, _) in zip(online, [*online[1:], (end_ns, end_ns)], strict=True):
        at = bisect_right(resumed, idle_ns)
        found.append((idle_ns, min(again_ns, resumed[at] if at < len(resumed) else again_ns)))
    return union(found)


def _rows(
    tenant: _Tenant, who: Who, online: Mapping[int, list[Span]], held: Mapping[int, list[Span]]
) -> Iterable[Row]:
    """Its work, divided by whether it had the card, and if not, whether for online's work or only held for
    it.

    A container with several cards stands back on all of them for online work on any.
    """
    beside = union(span for card in who.cards for span in online.get(card, []))
    holds = without(union(span for card in who.cards for span in held.get(card, [])), beside)
    for card, spans in tenant.work.items():
        lane, work = _lane(card, who), union(spans)
        off = union((off.start_ns, off.end_ns) for off in tenant.off)
        ran = without(work, off)
        for start_ns, end_ns in without(ran, tenant.drains):
            yield Row(lane, start_ns, end_ns, "run")
        for start_ns, end_ns in common(ran, tenant.drains):
            yield Row(lane, start_ns, end_ns, "drain")
        for each in tenant.off:
            waiting = common(work, [(each.start_ns, each.end_ns)])
            back = common(waiting, holds) if who.qos != "online" else []
            for start_ns, end_ns in back:
                yield Row(lane, start_ns, end_ns, "hold", "hold")
            for start_ns, end_ns in without(waiting, back):
                yield Row(lane, start_ns, end_ns, "suspended", each.why)


def _marks(tenant: _Tenant, who: Who) -> Iterable[Mark]:
    for at_ns, card, kind in tenant.marks:
        for each in who.cards if card is None else (card,):
            yield Mark(_lane(each, who), at_ns, cast(MarkKind, kind))


def _lane(card: int, who: Who) -> Lane:
    return Lane(f"GPU {card}", who.label, who.qos)
