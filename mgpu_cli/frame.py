"""What happened on the cards between two list replies: a frame of `mgpu top`."""

from typing import Any

from mgpu_cli import render
from mgpu_cli.render import Container

Reply = dict[str, Any]
Frame = dict[str, Any]


def between(before: Reply, after: Reply) -> Frame:
    """The cards of `after` with their containers: online first, then by share since `before`."""
    earlier = {row["id"]: row for row in before["containers"]}
    interval_ns = after["now_ns"] - before["now_ns"]
    return {
        "now_ns": after["now_ns"],
        "interval_ns": interval_ns,
        "cards": [_card(card, after["containers"], earlier, interval_ns) for card in after["cards"]],
    }


def _card(
    card: dict[str, Any], containers: list[Container], earlier: dict[str, Container], interval_ns: int
) -> dict[str, Any]:
    rows = [
        _row(container, own, earlier.get(container["id"]), interval_ns)
        for container in containers
        for own in container["cards"]
        if own["index"] == card["index"]
    ]
    rows.sort(key=lambda row: (row["class"] != "online", -(row["share_percent"] or 0), row["id"]))
    return {
        "index": card["index"],
        "name": card["name"],
        "policy": card["policy"],
        "online_busy": any(row["busy"] and row["class"] == "online" for row in rows),
        "memory_mib": card["memory_mib"],
        "used_bytes": card["used_bytes"],
        "reclaimable_mib": card.get("reclaimable_mib", 0),
        "evicted_bytes": card.get("evicted_bytes", 0),
        "containers": rows,
    }


def _row(
    container: Container, own: dict[str, Any], earlier: Container | None, interval_ns: int
) -> dict[str, Any]:
    sched = container["sched"]
    return {
        "id": container["id"],
        "container_id": container["container_id"],
        "name": render.name(container),
        "class": container["class"],
        "policy": container["policy"],
        "quota_percent": sched and sched["quota_percent"],
        "share_percent": _share(sched, earlier and earlier["sched"], interval_ns, "run_ns"),
        "video_percent": _share(sched, earlier and earlier["sched"], interval_ns, "video_ns"),
        "busy": bool(sched and sched["busy"]),
        "state": reclaim if (reclaim := _reclaim(container)) else render.activity(sched),
        "preemptions": sched["preemptions"] if sched else 0,
        "memory_mib": own["memory_mib"],
        "used_bytes": own["used_bytes"],
    }


def _reclaim(container: Container) -> str:
    state: str = container["reclaim"]["state"] if "reclaim" in container else "running"
    return "" if state == "running" else state


def _share(
    sched: dict[str, Any] | None, earlier: dict[str, Any] | None, interval_ns: int, which: str
) -> float | None:
    """Percent of the interval that it was charged for; None for a container that was not there before.

    A container is charged for its cards together, so the share is that of each of them.
    """
    if sched is None or earlier is None or interval_ns <= 0:
        return None
    ran_ns: int = sched.get(which, 0) - earlier.get(which, 0)
    return round(100 * ran_ns / interval_ns, 1)
