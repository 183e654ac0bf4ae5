"""What the arbiter shows: the documents behind `list` and `health`."""

import os
import resource
import sys
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from native_sched.daemon.engine import Engine
from native_sched.daemon.engine_abi import Process, Usage, Why
from native_sched.daemon.grants.closed import Closed
from native_sched.daemon.grants.grants import Grant
from native_sched.daemon.grants.refusals import can_evict
from native_sched.daemon.grants.served import Served
from native_sched.daemon.node import sight, without
from oci_specs import build
from placement.cards import CardState

_STARTED = time.monotonic()
# As it was when this mgpud began, whatever is installed meanwhile.
BUILD = build.build()


def _usage(engine: Engine, grant: Grant, card: int) -> Usage:
    with suppress(OSError):
        return engine.usage(grant.tenant, card)
    return Usage()


def _processes(engine: Engine, grant: Grant) -> list[Process]:
    with suppress(OSError):
        return engine.processes(grant.tenant)
    return []


def _evicted_from(grant: Grant) -> Sequence[str | None]:
    """By card, the UUID that its processes are restored from; None if these differ."""
    reclaim, here = grant.reclaim, tuple(card.uuid for card in grant.cards)
    origins = {reclaim.were.get(pid, here) for pid, _ in reclaim.processes} or {reclaim.saved or here}
    return origins.pop() if len(origins) == 1 else [None] * len(here)


def _comes_back(grant: Grant) -> str | None:
    """When an evicted container does, or why not yet, for people to read."""
    if grant.reclaim.state != "evicted":
        return None
    if grant.reclaim.by_hand:
        return "when it is resumed by hand"
    if grant.paused:
        return "not while it is paused"
    left_s = (grant.back_ns - time.monotonic_ns()) / 1e9
    if grant.waits or left_s < 0:
        return grant.waits or "once there is room for it"
    return f"in {left_s:.0f} s, if there is room for it until then"


def _parked(engine: Engine, grant: Grant) -> dict[str, int]:
    """Its calls that have waited for memory of others, since this mgpud began."""
    with suppress(OSError):
        state = engine.state(grant.tenant)
        return {"calls": state.parked, "ns": state.parked_ns}
    return {"calls": 0, "ns": 0}


def _sched(engine: Engine, grant: Grant, quota_percent: int | None) -> dict[str, Any] | None:
    """What the scheduler does with the container; None where there is nothing of it to schedule."""
    if quota_percent is None:
        return None
    try:
        state = engine.sched(grant.tenant)
    except OSError:
        return None
    return {
        "enabled": bool(state.enabled),
        "busy": bool(state.busy),
        "throttled": bool(state.throttled),
        "why": Why(state.why).name.lower(),
        "run_ns": state.run_ns,
        "suspended_ns": state.suspended_ns,
        "preemptions": state.preemptions,
        "video_ns": state.video_ns,
        "quota_percent": quota_percent,
    }


def container(served: Served, grant: Grant, lost: Collection[int]) -> dict[str, Any]:
    """One container with what it holds now, in bytes. lost: indices of cards that have fallen off the bus."""
    engine = served.engine
    cards = []
    for card, evicted_from in zip(grant.cards, _evicted_from(grant), strict=True):
        usage = _usage(engine, grant, card.index)
        cards.append(
            {
                "index": card.index,
                "uuid": card.uuid,
                "memory_mib": card.memory_mib,
                "used_bytes": usage.used_bytes,
                "peak_bytes": usage.peak_bytes,
                "evicted_bytes": grant.evicted_bytes(card.index, usage.used_bytes),
                "evicted_from": evicted_from,
                "core_percent": card.core_percent,
                "lost": card.index in lost,
                "without": without.of(engine, card.index),
            }
        )
    return {
        "id": grant.id,
        "container_id": grant.container_id,
        "pod": grant.identity.pod,
        "namespace": grant.identity.namespace,
        "container": grant.identity.container,
        "class": grant.qos,
        "policy": grant.policy,
        "claims": list(grant.claims),
        "advisory": grant.advisory,
        "whole": grant.alone,
        "capabilities": list(grant.capabilities),
        "state": grant.state,
        "paused": grant.paused,
        "reclaimable": grant.reclaimable,
        "reclaim": {
            "state": grant.reclaim.state,
            "evicted_bytes": sum(card["evicted_bytes"] for card in cards),
            "by_hand": grant.reclaim.by_hand,
            "not_moved": grant.not_moved or None,
            "comes_back": _comes_back(grant),
            "asked": grant.asked and grant.asked.what,
        },
        "parked": _parked(engine, grant),
        "lost_listener": grant.lost_listener,
        "containerd": None if grant.containerd is None else asdict(grant.containerd),
        "unaccounted_bytes": grant.unaccounted_bytes,
        "unsuspendable": grant.unsuspendable or None,
        "pid": grant.pid,
        "cards": cards,
        "sched": _sched(engine, grant, served.scheduling.quota_percent(grant)),
        "processes": [
            {"pid": p.pid, "card": p.card, "used_bytes": p.used_bytes} for p in _processes(engine, grant)
        ],
        "created": grant.created.isoformat(timespec="seconds"),
    }


def _demanded_bytes(served: Served, card: int) -> int:
    """The bytes that online calls wait for there."""
    return int(served.engine.card_memory(card).demanded_bytes) if served.lends_memory else 0


def everything(served: Served, closed: Closed) -> dict[str, Any]:
    """The containers and cards; now_ns is CLOCK_MONOTONIC, to compare run_ns and suspended_ns over time."""
    now_ns = time.monotonic_ns()
    containers = [container(served, grant, closed.lost) for grant in served.grants]
    rows = []
    for card in served.cards:
        mine = [c for row in containers for c in row["cards"] if c["index"] == card.index]
        hard = [
            c
            for row in containers
            if not row["reclaimable"]
            for c in row["cards"]
            if c["index"] == card.index
        ]
        owned = served.policies.of(card.index)
        rows.append(
            {
                "index": card.index,
                "minor": card.minor,
                "uuid": card.uuid,
                "name": card.name,
                "memory_mib": card.memory_mib,
                "policy": owned.policy if owned else None,
                "granted_mib": sum(c["memory_mib"] for c in hard),
                "reclaimable_mib": sum(c["memory_mib"] for c in mine) - sum(c["memory_mib"] for c in hard),
                "evicted_bytes": sum(c["evicted_bytes"] for c in mine),
                "demanded_bytes": _demanded_bytes(served, card.index),
                "used_bytes": sum(c["used_bytes"] for c in mine),
                "containers": len(mine),
                "lost": card.index in closed.lost,
                "drained": card.index in closed.drained,
                "released": closed.released.get(card.index, False),
            }
        )
    return {"now_ns": now_ns, "containers": containers, "cards": rows}


def health(served: Served, driver: str, driver_version: str) -> dict[str, Any]:
    engine, listeners = served.engine, 0
    for grant in served.grants:
        with suppress(OSError):
            listeners += engine.state(grant.tenant).listeners
    return {
        "driver": driver,
        "driver_version": driver_version,
        "rm_table": engine.rm_table,
        "driver_alive": engine.driver_alive,
        "pid": os.getpid(),
        "build": BUILD,
        "prefix": sys.prefix,
        "uptime_seconds": round(time.monotonic() - _STARTED, 3),
        "max_rss_kib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
        "cards": len(served.cards),
        "containers": len(served.grants),
        "listeners": listeners,
        "sched_fifo": engine.realtime,
        "cdi_dirs": list(served.config.cdi_dirs),
        "without": without.lines(engine, served.cards),
        "chips": sight.table(engine, served.cards),
    }


def inventory(served: Served, closed: Closed, driver_version: str) -> dict[str, Any]:
    """The node's cards, the rules for sharing them, and what of them is lent. Of the containers that share
    them now only those of pods for which mgpud chose cards: no scheduler knows which.
    """
    config = served.config
    chosen: dict[str, dict[str, list[str]]] = {}
    for grant in served.grants:
        who = grant.identity
        if grant.chosen and who.pod:
            pod = chosen.setdefault(f"{who.namespace}/{who.pod}", {})
            pod[who.container] = [card.uuid for card in grant.cards]
    return {
        "rules": {
            "policy": config.policy,
            "placement": config.placement,
            "max_containers_per_card": config.max_containers_per_card,
            "aliyun_unit": config.aliyun_unit,
        },
        "cards": [
            {
                "index": card.index,
                "uuid": card.uuid,
                "minor": card.minor,
                "model": card.name,
                "memory_mib": card.memory_mib,
                "architecture": card.architecture,
                "mig": card.instance is not None,
                "policy": served.policies.operators.get(card.index),
                "healthy": card.index not in closed.lost,
                "drained": card.index in closed.drained,
                "lending": _lending(state) if can_evict(driver_version, card) else None,
            }
            for card, state in zip(served.cards, served.card_states(served.grants), strict=True)
        ],
        "chosen": chosen,
    }


def _lending(card: CardState) -> dict[str, int] | None:
    """The card's memory by who has it (cluster/resources/inventory.py)."""
    if card.online_mib is None:
        return None
    offline = [tenant for tenant in card.tenants if tenant.qos == "offline"]
    lent_mib = sum(tenant.memory_mib for tenant in offline if tenant.reclaimable)
    return {
        "online_mib": card.online_mib,
        "kept_mib": sum(tenant.memory_mib for tenant in offline) - lent_mib,
        "lent_mib": lent_mib,
    }
