"""What owners and operators are told of containers, kept for peers that ask with `watch`.

It is taken from the log, after the log's own limits, so that neither can be flooded by a tenant.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from native_sched.daemon.grants.grants import Grant
from oci_specs.request import Identity

KEPT = 256

Fields = Mapping[str, object]


@dataclass(frozen=True, kw_only=True)
class ContainerEvent:
    """time: RFC 3339, in UTC. kind: a word for programs, as in `kubectl get events`. pod, namespace: empty
    where there is none, and container is the id then.
    """

    number: int
    time: str
    kind: str
    container_id: str
    pod: str
    namespace: str
    container: str
    text: str


# Event of the log: the kind, and the text for its fields.
_KINDS: dict[str, tuple[str, Callable[[Fields], str]]] = {
    "refused": ("GPURefused", lambda of: f"{of['why']}; {of['hint']}"),
    "killed-unaccounted": (
        "GPUMemoryOverCap",
        lambda of: f"ended: it holds {of['bytes']} bytes of GPU memory beside its grant",
    ),
    "killed-hidden": ("GPUWorkHidden", lambda _: "ended: no process of it shows its GPU files"),
    "killed-unsuspendable": (
        "GPUWorkNotSuspended",
        lambda of: f"ended: the driver does not suspend its GPU work ({of['why']})",
    ),
    "card-lost": (
        "GPULost",
        lambda of: (
            f"GPU {of['card']} has fallen off the bus; end it, or delete its pod, so that it is placed elsewhere"
        ),
    ),
    "lost-listener": (
        "GPUServiceLost",
        lambda of: (
            "its GPU calls are answered no more, since holder and mgpud ended at once; "
            + (
                "it was ended, so that it starts anew"
                if of.get("what") == "ended"
                else "end it, or delete its pod"
            )
        ),
    ),
    "evicted": (
        "GPUMemoryEvicted",
        lambda of: f"{of['mib']} MiB of GPU memory were moved to host memory, with their data",
    ),
    "came-evicted": (
        "GPUMemoryEvicted",
        lambda of: f"{of['mib']} MiB of GPU memory came with its checkpoint, and are kept in host memory",
    ),
    "restored": (
        "GPUMemoryRestored",
        lambda of: f"its {of['mib']} MiB of GPU memory are back, with their data",
    ),
    "other-gpus": ("GPUChanged", lambda of: f"it goes on with {of['gpus']} instead of {of['was']}"),
    "not-evicted": ("GPUMemoryNotEvicted", lambda of: f"its GPU memory does not give way: {of['why']}"),
    "not-restored": ("GPUMemoryNotRestored", lambda of: f"its GPU memory stays in host memory: {of['why']}"),
    "killed-unevictable": (
        "GPUMemoryNotEvicted",
        lambda of: f"ended: online containers need its GPU memory, which cannot be evicted ({of['why']})",
    ),
    "killed-not-restored": (
        "GPUMemoryLost",
        lambda of: f"ended: the driver lost the GPU memory of a process ({of['why']})",
    ),
    "share-beside": (
        "GPUShareOfItsOwn",
        lambda of: f"{of['memory_mib']} MiB of GPU memory of its own, beside {of['beside']} of the same pod",
    ),
    "policy-changed": ("GPUPolicyChanged", lambda of: f"its GPUs run {of['policy']} now, by the operator"),
}


class ContainerEvents:
    """The last of them. note() is what the log calls."""

    def __init__(self, first: int, grants: Iterable[Grant]) -> None:
        """first: the first event's number, above all numbers of a previous mgpud on this machine, so that
        each event has one of its own.
        """
        self._next = first
        self._grants = grants
        self._kept: deque[ContainerEvent] = deque(maxlen=KEPT)

    def note(self, event: str, fields: Fields) -> None:
        """An event of the log; those that are no container's are passed over."""
        if event not in _KINDS:
            return
        kind, text = _KINDS[event]
        for container_id, who in self._whose(fields).items():
            at = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
            self._kept.append(
                ContainerEvent(
                    number=self._next,
                    time=at,
                    kind=kind,
                    container_id=container_id,
                    pod=who.pod or "",
                    namespace=who.namespace or "",
                    container=who.container,
                    text=text(fields),
                )
            )
            self._next += 1

    def _whose(self, fields: Fields) -> dict[str, Identity]:
        """By the container's id."""
        if "container" in fields:
            known = {each.container_id: each.identity for each in self._grants}
            container_id = str(fields["container"])
            pod, namespace = (str(fields.get(each) or "") for each in ("pod", "namespace"))
            name = str(fields.get("name") or container_id)
            given = Identity(pod=pod, namespace=namespace, container=name)
            return {container_id: given if pod else known.get(container_id, given)}
        card = fields.get("card")
        return {
            each.container_id: each.identity
            for each in self._grants
            if isinstance(card, int) and each.has_card(card)
        }

    def since(self, number: int) -> dict[str, Any]:
        """The reply to `watch`: those from `number` on, oldest first, and the number to go on with.

        All of them for a number that is not given yet: the clock was set back before this mgpud began.
        """
        if number > self._next:
            number = 0
        return {
            "next": self._next,
            "events": [asdict(event) for event in self._kept if event.number >= number],
        }
