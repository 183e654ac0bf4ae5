"""Short ways to say nodes, cards and pods in tests of the scheduler."""

import time
from collections.abc import Iterable

from hypothesis import strategies as st

from cluster.process.conditions import Conditions
from cluster.resources.inventory import Card, Inventory, Lending, Rules
from cluster.scheduler.gangs import Gangs
from cluster.scheduler.pods import Container, Pod
from cluster.scheduler.reservations import Reservations
from cluster.scheduler.scheduler import Scheduler
from cluster.scheduler.starts import Starts
from cluster.scheduler.state import State
from oci_specs.request import Memory, Qos, Request

A100_MIB = 81_920


def state() -> State:
    scheduler = Scheduler("fgd")
    reservations = Reservations(scheduler, reserve_after_s=60, reserve_for_s=600)
    return State(scheduler, reservations, Gangs(scheduler), Starts(time.monotonic), Conditions(print))


def inventory(
    name: str,
    cards: int,
    *,
    memory_mib: int = A100_MIB,
    model: str = "A100",
    most: int = 16,
    online_mib: int | None = None,
) -> Inventory:
    """online_mib: what online containers use of each card, where the rest is lent."""
    lending = None if online_mib is None else Lending(online_mib=online_mib, kept_mib=0, lent_mib=0)
    return Inventory(
        rules=Rules(policy="fixed-share", placement="default", max_containers_per_card=most),
        cards=tuple(
            Card(
                index=index,
                minor=index,
                uuid=f"GPU-{name}-{index}",
                model=model,
                memory_mib=memory_mib,
                lending=lending,
            )
            for index in range(cards)
        ),
    )


def request(
    memory: int | None = None,
    core: int | None = None,
    *,
    count: int = 1,
    qos: Qos = "online",
    policy: str | None = None,
    reclaimable: bool = False,
) -> Request:
    """Totals over the cards; neither: whole cards."""
    return Request(
        qos=qos,
        policy=policy,
        count=count,
        memory=None if memory is None else Memory(mib=memory),
        core_percent=core,
        whole_cards=memory is None and core is None,
        reclaimable=reclaimable,
    )


def pod(
    name: str,
    *requests: Request,
    cpu_milli: int = 1000,
    models: Iterable[str] | None = None,
    priority: int = 0,
    created_s: float = 0,
) -> Pod:
    """With one container for each request, called c0, c1, …"""
    return Pod(
        uid=name,
        name=name,
        namespace="default",
        cpu_milli=cpu_milli,
        containers=tuple(Container(name=f"c{number}", request=each) for number, each in enumerate(requests)),
        models=None if models is None else frozenset(models),
        priority=priority,
        created_s=created_s,
    )


@st.composite
def requests(draw: st.DrawFn) -> Request:
    count = draw(st.sampled_from([1, 1, 1, 1, 2, 4]))
    kind = draw(st.sampled_from(["memory", "core", "both", "whole"]))
    memory = draw(st.integers(8, 640)) * 128 * count if kind in ("memory", "both") else None
    core = draw(st.integers(1, 100)) * count if kind in ("core", "both") else None
    kinds: list[Qos] = ["online", "online", "offline"]
    qos = draw(st.sampled_from(kinds))
    gives_way = qos == "offline" and memory is not None and draw(st.booleans())
    return request(memory, core, count=count, qos=qos, reclaimable=gives_way)
