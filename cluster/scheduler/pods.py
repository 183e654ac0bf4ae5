"""The scheduler's view of one pod."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from cluster.resources.wanted import ANY, Wanted
from oci_specs.request import Identity, Request

# A container's cards by its name, each card by its UUID: what the annotation mgpu.dev/placement says.
Placed = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, kw_only=True)
class Container:
    """A container that asks for cards."""

    name: str
    request: Request


@dataclass(frozen=True, kw_only=True)
class Pod:
    """One pod. containers: those that ask for cards, in the manifest's order; none: it asks for CPU alone.

    cpu_milli, memory_mib: requests of the whole pod, in thousandths of a CPU and MiB of the node's memory.
    models: names of the card models that its selectors and affinity leave, None where they leave all.
    created_s: seconds of the clock that reservations are told of. wanted: which cards its annotations leave.
    """

    uid: str
    namespace: str = ""
    name: str = ""
    cpu_milli: int = 0
    memory_mib: int = 0
    containers: tuple[Container, ...] = ()
    models: frozenset[str] | None = None
    priority: int = 0
    created_s: float = 0.0
    wanted: Wanted = ANY

    @cached_property
    def requests(self) -> tuple[Request, ...]:
        """Its containers' requests without their names, so that equal requests are equal."""
        return tuple(replace(each.request, identity=Identity()) for each in self.containers)
