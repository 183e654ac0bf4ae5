"""What mgpud lists, as tables or as the protocol's JSON as it is."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import click

from mgpu_cli import table
from oci_specs.features import FEATURES, HOW
from oci_specs.refusal import printable

# Objects of the control protocol's list reply: oci_specs/schemas/control.schema.json names their members.
Container = dict[str, Any]
Card = dict[str, Any]
Row = tuple[object, ...]

SHORT_ID_CHARS = 12
MIB = 1 << 20
NS_PER_S = 1_000_000_000
# The names, which have any length, come last: with short ones a row fits 80 columns.
CONTAINERS = ("CONTAINER", "GPU", "USED/CAP MiB", "CORE%", "CLASS", "POLICY", "STATE", "AGE", "NAME")
WIDE = ("GRANT", "PID", "CLAIM", "UUID")
CARDS = ("GPU", "NAME", "MEMORY MiB", "GRANTED", "USED", "CONTAINERS", "POLICY", "STATE", "UUID")
CONTAINERS_CARDS = ("GPU", "CAP MiB", "USED", "PEAK", "CORE%", "UUID")
PROCESSES = ("PID", "GPU", "USED MiB")
POLICIES = ("GPU", "POLICY", "SET BY", "CONTAINERS")


def as_json(value: object) -> None:
    click.echo(json.dumps(value, indent=2))


def mib(size_bytes: int) -> str:
    """size_bytes in MiB, rounded up: a container that uses one byte does not show as using none."""
    return str(-(-size_bytes // MIB))


def age(created: str, now: datetime | None = None) -> str:
    """Time since the RFC 3339 timestamp `created`, in its largest unit: 42s, 5m, 3h, 2d."""
    seconds = int(((now or datetime.now(UTC)) - datetime.fromisoformat(created)).total_seconds())
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= length:
            return f"{seconds // length}{unit}"
    return f"{max(seconds, 0)}s"


def name(container: Container) -> str:
    """namespace/pod/container as far as the engine said, on one line; else the name that containerd, Docker
    or podman has for it.

    Empty when there is none but the id.
    """
    parts = [container[key] for key in ("namespace", "pod", "container")]
    known = [part for part in parts if part and part != container["container_id"]]
    if not known and (containerd := container.get("containerd")) and containerd["name"]:
        known = [containerd["name"]]
    if not known and container.get("name"):
        known = [container["name"]]
    return printable("/".join(known))


def state(container: Container) -> str:
    marks = [name for name in ("paused", "advisory") if container[name]]
    if container.get("unaccounted_bytes") or container.get("unsuspendable"):
        marks.append("killed")
    if container.get("lost_listener"):
        marks.append("lost-listener")
    if (reclaim := container.get("reclaim")) and reclaim["state"] != "running":
        marks.append(reclaim["state"])
    marks += [f"GPU {card['index']} lost" for card in container["cards"] if card.get("lost")]
    return ", ".join([container["state"], *marks])


def _caught(container: Container) -> Iterator[Row]:
    if container.get("lost_listener"):
        yield (
            "Listener:",
            "lost: the GPU calls of its main process fail for good; end it to have it served again",
        )
    if unaccounted := container.get("unaccounted_bytes"):
        yield "Killed:", f"it had {mib(unaccounted)} MiB that it was not charged for"
    if why := container.get("unsuspendable"):
        yield "Killed:", f"its work could not be suspended: {why}"


def _reclaim(container: Container) -> Iterator[Row]:
    reclaim = container.get("reclaim")
    if not reclaim or not (
        container["reclaimable"] or reclaim["state"] != "running" or reclaim["not_moved"]
    ):
        return
    held = f", {mib(reclaim['evicted_bytes'])} MiB" if reclaim["evicted_bytes"] else ""
    by_hand = ", by hand" if reclaim["by_hand"] else ""
    label = "Reclaimable:" if container["reclaimable"] else "GPU memory:"
    yield label, f"{reclaim['state']}{held}{by_hand}"
    if reclaim.get("comes_back"):
        yield "Comes back:", reclaim["comes_back"]
    if reclaim["not_moved"]:
        yield "Not moved:", reclaim["not_moved"]


def _parked(parked: dict[str, int] | None) -> Iterator[Row]:
    if parked and (calls := parked["calls"]):
        waited_s = parked["ns"] / NS_PER_S
        yield "Waited:", f"{waited_s:.3f} s in {calls} calls, for memory that gives way"


def lost(container: str) -> str:
    """What is to be done about a container whose grant mgpud cannot read."""
    return f"{container}: its grant cannot be read; end it, nothing new is admitted before"


def containers(found: list[Container], unreadable: list[str] | None = None, *, wide: bool = False) -> None:
    """unreadable: containers that have a grant which says nothing."""
    for container in unreadable or []:
        click.echo(f"mgpu: {lost(container)}", err=True)
    if found or not unreadable:
        click.echo(containers_text(found, wide=wide), nl=False)


def containers_text(found: list[Container], *, wide: bool = False) -> str:
    if not found:
        return "No container holds a GPU.\n"
    heading = (*CONTAINERS, *WIDE) if wide else CONTAINERS
    return table.text([heading, *(line for row in found for line in _container_lines(row, wide))])


def cards(found: list[Card]) -> None:
    if not found:
        click.echo("This node has no GPUs.")
        return
    _show(
        CARDS,
        *(
            (
                row["index"],
                row["name"],
                row["memory_mib"],
                row["granted_mib"],
                mib(row["used_bytes"]),
                row["containers"],
                row["policy"] or "-",
                card_state(row),
                row["uuid"],
            )
            for row in found
        ),
    )


def card_state(card: Card) -> str:
    """drained: mgpud has nothing of it open, and no container has it."""
    marks = ["lost"] if card.get("lost") else []
    if card.get("drained"):
        marks.append("draining" if card["containers"] or not card["released"] else "drained")
    return ", ".join(marks) or "-"


def policies(found: list[Card]) -> None:
    """The cards of a policy reply, each with who set its policy."""
    if not found:
        click.echo("This node has no GPUs.")
        return
    _show(
        POLICIES,
        *(
            (
                row["index"],
                row["policy"],
                row["owner"][:SHORT_ID_CHARS],
                ", ".join(each[:SHORT_ID_CHARS] for each in row["tenants"]) or "-",
            )
            for row in found
        ),
    )


def activity(sched: dict[str, Any] | None) -> str:
    """Whether the scheduler lets it run, and if not, why; of the container as a whole."""
    if sched is None:
        return "-"
    if sched["enabled"]:
        return "running" if sched["busy"] else "idle"
    return f"suspended ({sched['why']})" if sched["busy"] else "idle, suspended"


# What a card is without, native_sched/daemon/node/without.py: what that means to a reader who looks at one
# container.
_WITHOUT = {
    "engine-status": "idle by samples of its use",
    "utilization": "idle by fetch only",
    "userd": "no work seen of some channels",
    "disable-channels": "suspended by runlist only",
    "timeslices": "no timeslices",
    "group-ids": "some groups not told apart",
}


def _without(cards: list[dict[str, Any]]) -> Iterator[Row]:
    for card in cards:
        for what in card.get("without", ()):
            yield f"GPU {card['index']}:", _WITHOUT.get(what, f"without {what}")


def _grant(found: Container) -> Iterator[Row]:
    """What it gets beside computing, and how it would get more; mgpu explain has the rest."""
    if not found["cards"] or "whole" not in found:
        return
    has = found.get("capabilities", [])
    if has:
        yield "Driver:", ", ".join(has)
    may = [
        each
        for each in FEATURES
        if each.whole and each.capability in ("", *has) and len(found["cards"]) >= each.gpus
    ]
    if found["whole"]:
        yield "GPUs:", f"whole, to it alone: {', '.join(each.name for each in may)}"
        return
    more = ", ".join(each.name for each in may if not each.share)
    yield "GPUs:", f"shared: {', '.join(each.name for each in may if each.share)}; for {more} {HOW}"


def _scheduling(sched: dict[str, Any] | None, cards: list[dict[str, Any]]) -> Iterator[Row]:
    yield "Activity:", activity(sched)
    if sched is not None:
        yield from _without(cards)
        yield "Share:", f"{sched['quota_percent']} percent of each GPU"
        video = (
            f", {video_ns / NS_PER_S:.3f} s of it on video engines"
            if (video_ns := sched.get("video_ns"))
            else ""
        )
        yield "Ran:", f"{sched['run_ns'] / NS_PER_S:.3f} s{video}"
        suspended_s = sched["suspended_ns"] / NS_PER_S
        yield "Suspended:", f"{suspended_s:.3f} s, preempted {_times(sched['preemptions'])}"


def _containerd(task: dict[str, Any] | None) -> Iterator[Row]:
    if task is not None:
        killed = f", out of host memory {_times(task['oom_kills'])}" if task["oom_kills"] else ""
        yield "Containerd:", f"task {task['task']}, namespace {task['namespace']}, {task['runtime']}{killed}"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def container(found: Container) -> None:
    _show(
        ("Container:", found["container_id"]),
        ("Name:", name(found) or "-"),
        ("Grant:", found["id"]),
        ("State:", state(found)),
        *_containerd(found["containerd"]),
        *_caught(found),
        *_reclaim(found),
        *_parked(found.get("parked")),
        ("Class:", found["class"]),
        ("Policy:", found["policy"] or "-"),
        *(("Claim:", "/".join(each.split("/")[:2])) for each in found.get("claims", ())),
        *_grant(found),
        *_scheduling(found["sched"], found["cards"]),
        ("Pid:", found["pid"] if found["pid"] is not None else "-"),
        ("Created:", f"{found['created']} ({age(found['created'])} ago)"),
    )
    click.echo()
    _show(
        CONTAINERS_CARDS,
        *(
            (
                card["index"],
                card["memory_mib"],
                mib(card["used_bytes"]),
                mib(card["peak_bytes"]),
                _core(card),
                card["uuid"],
            )
            for card in found["cards"]
        ),
    )
    click.echo()
    if not found["processes"]:
        click.echo("No process in it uses a GPU.")
        return
    _show(PROCESSES, *((row["pid"], row["card"], mib(row["used_bytes"])) for row in found["processes"]))


def _container_lines(row: Container, wide: bool) -> Iterator[Row]:
    """One line for each of its cards; what is said of the container as a whole stands on the first.

    An advisory container has a line also when it was given no card: it is there to be seen.
    """
    before: Row = (row["container_id"][: None if wide else SHORT_ID_CHARS],)
    after: Row = (row["class"], row["policy"] or "-", state(row), age(row["created"]), name(row) or "-")
    if wide:
        claims = ",".join("/".join(each.split("/")[:2]) for each in row.get("claims", ()))
        after += (row["id"], row["pid"] or "-", claims or "-")
    if not row["cards"]:
        yield (*before, "-", "-", "-", *after, *(["-"] if wide else []))
    for card in row["cards"]:
        used = f"{mib(card['used_bytes'])}/{card['memory_mib']}"
        yield (*before, card["index"], used, _core(card), *after, *([card["uuid"]] if wide else []))
        before, after = ("",) * len(before), ("",) * len(after)


def _core(card: Card) -> str:
    return "-" if card["core_percent"] is None else str(card["core_percent"])


def _show(*rows: Row) -> None:
    click.echo(table.text(rows), nl=False)
