"""Gangs: pods that only make sense together have cards all at once, or none of them has any.

gangs = Gangs(scheduler)
why = gangs.place(gang, members, needed, labels, now_s)    # "" where enough of them have a place now
gangs.of(uid)                          # the place of one: its cards count as taken
gangs.came(uid)                        # the stock scheduler would bind it now
gangs.is_whole(uid)                    # all have come: it may
gangs.take(uid)                        # it is being bound: whoever binds it gives its cards back from now on
gangs.give_back(gang, why)
gangs.tick(now_s)                      # from time to time: gives back what has waited long enough

Nothing is kept for a gang that does not fit whole, so that no two can each have half of what both need.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from cluster.scheduler.pods import Placed, Pod
from cluster.scheduler.scheduler import Scheduler
from oci_specs.refusal import Refusal

# The nearest nodes first: one NVLink domain, as NVIDIA's feature discovery labels it, then one rack.
DOMAINS = ("nvidia.com/gpu.clique", "topology.kubernetes.io/rack")
# The stock scheduler sends them all within this time once they are there. With a binding after it, it is
# less than that scheduler waits for an extender.
TOGETHER_S = 10.0
# Places are kept for so long where a binding failed once all had come.
_AGAIN_S = 60.0
# What has been found not to fit is not tried again so soon, unless there is more room: each of its pods asks.
_UNCHANGED_S = 10.0
# Domains of one label that are tried, the fullest that have as many GPUs free first.
_DOMAINS_MAX = 16


@dataclass(frozen=True, kw_only=True)
class Place:
    node: str
    placed: Placed


@dataclass(frozen=True, kw_only=True)
class Member:
    """names: nodes that the pod may be on."""

    pod: Pod
    names: Sequence[str]


@dataclass(kw_only=True)
class _Held:
    until_s: float
    places: dict[str, Place]
    came: set[str] = field(default_factory=set)
    whole: bool = False


class Gangs:
    """domains: keys of nodes' labels. together_s: how long places wait for all pods to come."""

    def __init__(
        self, scheduler: Scheduler, *, domains: Sequence[str] = DOMAINS, together_s: float = TOGETHER_S
    ) -> None:
        self.domains = domains
        self._scheduler = scheduler
        self._together_s = together_s
        self._now_s = 0.0
        self._held: dict[str, _Held] = {}
        self._gang_of: dict[str, str] = {}
        # Why it was given back, and until when nothing is kept again: others have their turn.
        self._given_back: dict[str, tuple[str, float]] = {}
        # What did not fit, as of which room, why, and until when that is taken for granted.
        self._refused: dict[str, tuple[int, int, str, float]] = {}

    def of(self, uid: str) -> Place | None:
        gang = self._gang_of.get(uid)
        return None if gang is None else self._held[gang].places[uid]

    def place(
        self,
        gang: str,
        members: Sequence[Member],
        needed: int,
        labels: Mapping[str, Mapping[str, str]],
        now_s: float,
        *,
        begun: bool = False,
    ) -> str:
        """members: those that have no node yet, of which so many are needed. labels: of the nodes. begun:
        others of it have one, so that these need not come together. The line says why none has a place.
        """
        self.tick(now_s)
        if gang in self._given_back and self._given_back[gang][1] > now_s:
            return self._given_back[gang][0]
        if not members:
            return f"{gang}: no pod of it waits"
        if gang in self._held:
            return f"{gang}: others of it have a place and come first"
        asked = _asked(members, needed)
        before, freed, why, until_s = self._refused.get(gang, (0, 0, "", 0.0))
        if (before, freed) == (asked, self._scheduler.freed) and now_s < until_s:
            return why
        members = sorted(members, key=lambda each: (-self._scheduler.gpus(each.pod), each.pod.uid))
        most = 0
        for nodes in (*self._nearest(members, needed, labels), None):
            places = self._try(members, needed, nodes)
            most = max(most, len(places))
            if len(places) >= needed:
                until_s = now_s + (_AGAIN_S if begun else self._together_s)
                self._held[gang] = _Held(until_s=until_s, places=places, whole=begun)
                self._gang_of |= dict.fromkeys(places, gang)
                self._given_back.pop(gang, None)
                return ""
        why = f"{gang}: only {most} of {needed} pods have room at once, so none is placed"
        self._refused[gang] = asked, self._scheduler.freed, why, now_s + _UNCHANGED_S
        return why

    def came(self, uid: str) -> None:
        gang = self._gang_of.get(uid)
        if gang is None:
            return
        held = self._held[gang]
        held.came.add(uid)
        if not held.whole and held.came >= held.places.keys():
            held.whole = True
            held.until_s = self._now_s + _AGAIN_S

    def is_whole(self, uid: str) -> bool:
        gang = self._gang_of.get(uid)
        return gang is not None and self._held[gang].whole

    def take(self, uid: str) -> None:
        gang = self._gang_of.pop(uid, None)
        if gang is not None:
            del self._held[gang].places[uid]
            if not self._held[gang].places:
                del self._held[gang]

    def put_back(self, gang: str, uid: str, place: Place) -> None:
        """It was not bound after all: its cards are kept for it, since others of the gang have theirs."""
        held = self._held.setdefault(gang, _Held(until_s=self._now_s + _AGAIN_S, places={}, whole=True))
        held.places[uid] = place
        self._gang_of[uid] = gang

    def gone(self, uid: str) -> None:
        """The pod has ended: the others have to be placed with another in its stead."""
        gang = self._gang_of.get(uid)
        if gang is not None:
            self.give_back(gang, f"{gang}: one of its pods is gone")

    def give_back(self, gang: str, why: str, *, rest_s: float = 0.0) -> None:
        held = self._held.pop(gang, None)
        if held is not None:
            for uid in held.places:
                del self._gang_of[uid]
                self._scheduler.remove_pod(uid)
            self._given_back[gang] = why, self._now_s + rest_s

    def why(self, gang: str) -> str:
        return self._given_back.get(gang, ("nothing is kept for its gang", 0.0))[0]

    def tick(self, now_s: float) -> None:
        self._now_s = now_s
        for gang in [gang for gang, held in self._held.items() if held.until_s <= now_s]:
            held = self._held[gang]
            why = (
                f"{gang}: {len(held.came & held.places.keys())} of {len(held.places)} pods came in time, "
                "so all that was kept for it is given back"
            )
            self.give_back(gang, why, rest_s=0 if held.whole else self._together_s)
        self._refused = {gang: each for gang, each in self._refused.items() if each[3] > now_s}
        # What is said to pods that wait for the stock scheduler to try again, which it does within seconds.
        self._given_back = {
            gang: each for gang, each in self._given_back.items() if each[1] + _AGAIN_S > now_s
        }

    def _try(self, members: Sequence[Member], needed: int, nodes: set[str] | None) -> dict[str, Place]:
        """Places for enough of them, which count as taken; or of fewer, and nothing is taken."""
        places: dict[str, Place] = {}
        for number, member in enumerate(members):
            place = self._one(member, nodes)
            if place is not None:
                places[member.pod.uid] = place
            elif len(places) + len(members) - number <= needed:
                break
        if len(places) < needed:
            for uid in places:
                self._scheduler.roll_back_pod(uid)
        return places

    def _one(self, member: Member, nodes: set[str] | None) -> Place | None:
        pod, scheduler = member.pod, self._scheduler
        known = scheduler.occupancy.nodes
        # CPU and memory are the stock scheduler's to count, and it sees one pod at a time.
        names = [
            name
            for name in (member.names if nodes is None else nodes.intersection(member.names))
            if name in known
            and known[name].cpu_free_milli >= pod.cpu_milli
            and known[name].memory_free_mib >= pod.memory_mib
        ]
        name = scheduler.best(pod, names)
        if name is None:
            return None
        try:
            place = Place(node=name, placed=scheduler.choose(pod, name))
        except Refusal:
            return None
        scheduler.put_pod(pod, name, place.placed)
        return place

    def _nearest(
        self, members: Iterable[Member], needed: int, labels: Mapping[str, Mapping[str, str]]
    ) -> list[set[str]]:
        """Nodes of one domain each, that may have room for all of it."""
        free = self._scheduler.free_gpus()
        asked = sum(sorted(self._scheduler.gpus(each.pod) for each in members)[:needed])
        found: list[set[str]] = []
        for key in self.domains:
            nodes: defaultdict[str, set[str]] = defaultdict(set)
            for name, texts in labels.items():
                if key in texts and name in free:
                    nodes[texts[key]].add(name)
            sums = {value: sum(free[name] for name in names) for value, names in nodes.items()}
            large = sorted((value for value in sums if sums[value] >= asked), key=lambda value: sums[value])
            found += [nodes[value] for value in large[:_DOMAINS_MAX]]
        return found


def _asked(members: Sequence[Member], needed: int) -> int:
    """Equal for equal ones. Most members have one list of nodes in common, which may be long."""
    lists = {id(each.names): each.names for each in members}
    hashes = {key: hash(tuple(names)) for key, names in lists.items()}
    return hash((needed, *((each.pod.uid, hashes[id(each.names)]) for each in members)))
