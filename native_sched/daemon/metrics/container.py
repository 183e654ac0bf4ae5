"""The containers' series. There are more than a dozen of each, so they are written out here:
prometheus_client escapes each label of each sample anew and takes more than ten times as long.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Literal

from native_sched.daemon.engine import Engine
from native_sched.daemon.engine_abi import Refused, Usage
from native_sched.daemon.grants.grants import Grant
from native_sched.daemon.metrics.account import NS_PER_S
from native_sched.daemon.metrics.service import Observed
from oci_specs.refusal import printable

REASONS = tuple(reason.name.lower() for reason in Refused)
# Kubernetes' own limit of a name; other engines know none.
_LABEL_MAX_CHARS = 253
_PREFIX = "mgpu_container_"
_READINGS = 4


class Family:
    """One metric and its lines so far."""

    def __init__(self, name: str, kind: Literal["counter", "gauge"], text: str) -> None:
        self._name = _PREFIX + name
        self._kind = kind
        self._help = text
        self._sample = f"{self._name}_total" if kind == "counter" else self._name
        self._lines: list[str] = []

    def add(self, labels: str, number: float) -> None:
        """labels: pairs as label() makes them, with commas in between."""
        self._lines.append(f"{self._sample}{{{labels}}} {number!r}\n")

    def text(self, openmetrics: bool) -> str:
        # OpenMetrics names a counter without its suffix, the older format with it.
        name = self._name if openmetrics else self._sample
        return f"# HELP {name} {self._help}\n# TYPE {name} {self._kind}\n{''.join(self._lines)}"


def label(name: str, value: str | None) -> str:
    """A label pair; names come from pods, and a long one or one that is no UTF-8 would spoil the scrape."""
    text = printable((value or "")[:_LABEL_MAX_CHARS])
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'{name}="{escaped}"'


def _labels(grant: Grant, name: str) -> str:
    """name: an engine's, for one that has none of a pod's."""
    who = grant.identity
    return ",".join(
        (
            label("container_id", grant.container_id),
            label("namespace", who.namespace),
            label("pod", who.pod),
            label("container", name or who.container),
            label("class", grant.qos),
            label("policy", grant.policy),
        )
    )


def shown(grants: Iterable[Grant]) -> list[Grant]:
    """One grant for each container id: a series may come only once, and who was created anew under its name
    hides the grants of its earlier lives that still drain.
    """
    by_id: dict[str, Grant] = {}
    for grant in grants:
        if grant.state != "draining" or grant.container_id not in by_id:
            by_id[grant.container_id] = grant
    return list(by_id.values())


Held = dict[tuple[int, int], Usage]


def held(engine: Engine, grants: Iterable[Grant]) -> Held:
    """What each container holds of each of its cards, by tenant and card, at one moment: twice the same, or
    what goes from one to another in between counts for both.
    """
    wanted = [(grant.tenant, card.index) for grant in grants for card in grant.cards]
    found: Held = {}
    for _ in range(_READINGS):
        before, found = found, {each: _usage(engine, *each) for each in wanted}
        if all(each in before and before[each].used_bytes == found[each].used_bytes for each in wanted):
            break
    return found


def _usage(engine: Engine, tenant: int, card: int) -> Usage:
    """Nothing once the engine has forgotten it."""
    with suppress(OSError):
        return engine.usage(tenant, card)
    return Usage()


def _refused(engine: Engine, grant: Grant) -> Sequence[int]:
    with suppress(OSError):
        return engine.refused(grant.tenant)
    return (0,) * len(Refused)


def containers(of: Observed, found: Held, openmetrics: bool) -> str:
    """The series of each container that holds a grant; they end with it."""
    used = Family("memory_used_bytes", "gauge", "Memory that it holds on the GPU.")
    limit = Family("memory_limit_bytes", "gauge", "Its memory cap on the GPU.")
    evicted = Family("memory_evicted_bytes", "gauge", "Memory of the GPU that is kept in host memory.")
    run = Family("run_seconds", "counter", "Time of its GPUs that it was charged for.")
    video = Family("video_seconds", "counter", "Of that, with a video engine at work.")
    share = Family("share_ratio", "gauge", "Part of the last ten seconds that it was charged for.")
    suspended = Family("suspended_seconds", "counter", "Time that it was suspended.")
    preemptions = Family("preemptions", "counter", "Times that it was suspended for another's work.")
    refused = Family("refused_calls", "counter", "Calls that mgpu itself refused it.")
    lost = Family("lost_listener", "gauge", "Whether its main process has nobody to answer its calls.")
    reasons = [label("reason", reason) for reason in REASONS]
    for grant in shown(of.grants):
        labels = _labels(grant, of.engine_names.get(grant.container_id, ""))
        seen = of.account.look(grant)
        run.add(labels, seen.run_ns / NS_PER_S)
        video.add(labels, seen.video_ns / NS_PER_S)
        share.add(labels, of.account.share(seen))
        suspended.add(labels, seen.suspended_ns / NS_PER_S)
        preemptions.add(labels, seen.preemptions)
        lost.add(labels, int(grant.lost_listener))
        for reason, count in zip(reasons, _refused(of.engine, grant), strict=True):
            refused.add(f"{labels},{reason}", count)
        for card in grant.cards:
            has = found[grant.tenant, card.index]
            place = f"{labels},{label('card', str(card.index))},{label('uuid', card.uuid)}"
            used.add(place, has.used_bytes)
            limit.add(place, has.cap_bytes)
            evicted.add(place, grant.evicted_bytes(card.index, has.used_bytes))
    families = (used, limit, evicted, run, video, share, suspended, preemptions, refused, lost)
    return "".join(family.text(openmetrics) for family in families)
