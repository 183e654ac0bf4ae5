"""Asking mgpud for what the scheduler did, and who the grants in it are."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from mgpu_cli import client, render
from mgpu_cli.render import Container
from mgpu_cli.timeline.account import Event, Who

# At most so many come in one reply: fewer mean that there are no more.
PAGE_EVENTS = 8192


class Collector:
    """Continues reading; now_ns: mgpud's clock at the last reading; lost: events it had forgotten."""

    def __init__(self, control: Path) -> None:
        self._control = control
        self._next = 0
        self.now_ns = 0
        self.lost = 0
        self.who: dict[str, Who] = {}

    def read(self) -> Iterator[Event]:
        """What happened since the last reading, oldest first."""
        while True:
            reply = client.ask(self._control, "timeline", since=self._next)
            self._next, self.now_ns = reply["next"], reply["now_ns"]
            self.lost += reply["lost"]
            yield from (Event(*event) for event in reply["events"])
            if len(reply["events"]) < PAGE_EVENTS:
                return

    def meet(self, listed: list[Container] | None = None) -> None:
        """Learns which containers there are by now. Ended ones are remembered, as without work.

        listed: they, where they were asked for already.
        """
        containers = client.listing(self._control)["containers"] if listed is None else listed
        gone = {grant: replace(known, busy=False, enabled=True) for grant, known in self.who.items()}
        self.who = gone | dict(_present(containers))


def _present(containers: list[Container]) -> Iterator[tuple[str, Who]]:
    labels = [render.name(row) or row["container_id"][: render.SHORT_ID_CHARS] for row in containers]
    for row, label in zip(containers, labels, strict=True):
        sched = row["sched"]
        if sched is not None:
            yield (
                row["id"],
                Who(
                    label=label if labels.count(label) == 1 else f"{label} {row['id']}",
                    qos=row["class"],
                    cards=tuple(card["index"] for card in row["cards"]),
                    busy=sched["busy"],
                    enabled=sched["enabled"],
                    why=sched["why"],
                ),
            )
