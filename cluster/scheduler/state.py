"""The cluster as the API server shows it, and what is about to be: all that the extender decides from.

Nothing is kept beside it: a new extender lists nodes and pods and knows as much.
"""

from collections import OrderedDict, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from cluster.api.follow import Change, Changed, Deleted, Listed
from cluster.process.conditions import Conditions
from cluster.resources import inventory
from cluster.resources.inventory import ANNOTATION, Inventory
from cluster.resources.wanted import Wanted
from cluster.scheduler import reading, selectors
from cluster.scheduler.gangs import Gangs, Place
from cluster.scheduler.members import members, texts
from cluster.scheduler.pods import Placed, Pod
from cluster.scheduler.reading import Known, Units
from cluster.scheduler.reservations import Reservations
from cluster.scheduler.scheduler import Scheduler
from cluster.scheduler.starts import Starts
from oci_specs.refusal import Refusal

# Pods that the stock scheduler asked about and that no list or watch has shown yet.
_ASKED_MAX = 4096


@dataclass(frozen=True, kw_only=True)
class Assumed:
    """A binding that no watch has shown yet. is_made: the API server has it. doubtful_until_s: None while the
    call runs; then it is not known whether the API server has it, until this time of a steady clock. gang: ""
    for a pod of its own.
    """

    node: str
    placed: Placed
    is_made: bool = False
    doubtful_until_s: float | None = None
    gang: str = ""


@dataclass(frozen=True, kw_only=True)
class _Node:
    inventory: Inventory | None
    text: str | None
    resources: tuple[int, int]
    labels: Mapping[str, str]


class State:
    """known: every pod that has not ended, by UID. assumed: bindings under way, by the pod's UID."""

    def __init__(
        self,
        scheduler: Scheduler,
        reservations: Reservations,
        gangs: Gangs,
        starts: Starts,
        conditions: Conditions,
    ) -> None:
        self.scheduler = scheduler
        self.gangs = gangs
        self.starts = starts
        self.reservations = reservations
        self.known: dict[str, Known] = {}
        self.assumed: dict[str, Assumed] = {}
        self._conditions = conditions
        # UIDs of known pods by the gang that they are of.
        self._groups: defaultdict[str, set[str]] = defaultdict(set)
        self._nodes: dict[str, _Node] = {}
        self._asked: OrderedDict[str, Known] = OrderedDict()
        self._listed: set[str] = set()
        # None: nodes have changed since.
        self._units: Units | None = None

    @property
    def is_ready(self) -> bool:
        """Whether nodes and pods have been listed once."""
        return self._listed == {"nodes", "pods"}

    def change_nodes(self, change: Change) -> None:
        match change:
            case Listed(objects):
                for name in self._nodes.keys() - {_name(each) for each in objects}:
                    self._remove_node(name)
                for each in objects:
                    self._put_node(each)
                self._listed.add("nodes")
            case Changed(value):
                self._put_node(value)
            case Deleted(value):
                self._remove_node(_name(value))

    def change_pods(self, change: Change, now_s: float) -> None:
        match change:
            case Listed(objects):
                for uid in self.known.keys() - {_uid(each) for each in objects}:
                    self.forget(uid)
                for each in objects:
                    self._put_pod(each, now_s)
                self._listed.add("pods")
            case Changed(value):
                self._put_pod(value, now_s)
            case Deleted(value):
                self.forget(_uid(value))

    def asked(self, value: Mapping[str, Any]) -> Known:
        """The pod that the stock scheduler asks about; it may know it before the watch does."""
        meta = members(value, "metadata")
        version, before = meta.get("resourceVersion"), self.find(str(meta.get("uid")))
        if version and before is not None and before.version == version:
            return before
        found = self._read(value)
        if found.pod.uid not in self.known:
            self._asked[found.pod.uid] = found
            if len(self._asked) > _ASKED_MAX:
                self._asked.popitem(last=False)
        return found

    def gang(self, known: Known) -> list[Known]:
        """The pods of its gang, itself among them, that run or may be placed."""
        assert known.group is not None
        found = [self.known[uid] for uid in sorted(self._groups.get(known.group.said, ()))]
        if known.pod.uid not in self.known:
            found.append(known)
        return [each for each in found if not (each.terminating or each.is_gated or each.refusal)]

    def of_gangs(self) -> list[Known]:
        """One pod of each."""
        return [self.known[min(uids)] for uids in self._groups.values()]

    def labels(self) -> dict[str, Mapping[str, str]]:
        return {name: node.labels for name, node in self._nodes.items()}

    def find(self, uid: str) -> Known | None:
        return self.known.get(uid) or self._asked.get(uid)

    def assume(self, pod: Pod, assumed: Assumed) -> None:
        """The pod has these cards from now on."""
        self.gangs.take(pod.uid)
        self.assumed[pod.uid] = assumed
        self.scheduler.put_pod(pod, assumed.node, assumed.placed)

    def made(self, uid: str) -> None:
        if uid in self.assumed:
            self.assumed[uid] = replace(self.assumed[uid], is_made=True, doubtful_until_s=None)

    def doubt(self, uid: str, until_s: float) -> None:
        if uid in self.assumed:
            self.assumed[uid] = replace(self.assumed[uid], doubtful_until_s=until_s)

    def withdraw(self, uid: str) -> None:
        """The binding has certainly not been made."""
        assumed = self.assumed.pop(uid, None)
        if assumed is None:
            return
        self.starts.answered(uid)
        if assumed.gang:
            self.gangs.put_back(assumed.gang, uid, Place(node=assumed.node, placed=assumed.placed))
        else:
            self.scheduler.remove_pod(uid)

    def pass_time(self, now_s: float) -> None:
        """Ends what has lasted long enough."""
        self.reservations.tick(now_s)
        self.gangs.tick(now_s)
        for uid, each in list(self.assumed.items()):
            if each.doubtful_until_s is not None and each.doubtful_until_s <= now_s:
                self.withdraw(uid)

    def forget(self, uid: str) -> None:
        """The pod has ended, or is gone: its cards are free."""
        known = self.known.pop(uid, None)
        if known is not None and known.group is not None:
            self._groups[known.group.said].discard(uid)
            if not self._groups[known.group.said]:
                del self._groups[known.group.said]
        if known is not None and known.node:
            self.scheduler.ended(known.pod)
        self._asked.pop(uid, None)
        self.assumed.pop(uid, None)
        self.gangs.gone(uid)
        self.starts.answered(uid)
        self.reservations.forget(uid)
        self.scheduler.remove_pod(uid)

    def _put_node(self, value: Mapping[str, Any]) -> None:
        name, meta = _name(value), members(value, "metadata")
        text = texts(meta, "annotations").get(ANNOTATION)
        before = self._nodes.get(name)
        read_before = before is not None and before.text == text
        found = before.inventory if before and read_before else self._inventory(name, text)
        node = _Node(
            inventory=found,
            text=text,
            resources=reading.node_resources(value),
            labels=texts(meta, "labels"),
        )
        if node == before:
            return
        self._nodes[name] = node
        if found is None:
            self.scheduler.remove_node(name)
        else:
            self.scheduler.put_node(name, found, *node.resources)
        if before is None or (not read_before and _lasting(before.inventory) != _lasting(found)):
            self._units = None

    def _remove_node(self, name: str) -> None:
        if self._nodes.pop(name, None) is not None:
            self._units = None
            self.scheduler.remove_node(name)
            self._conditions.clear(f"inventory {name}", f"node {name} is gone")

    def _current_units(self) -> Units:
        if self._units is None:
            inventories = (each.inventory for each in self._nodes.values())
            self._units = reading.units_of(each for each in inventories if each is not None)
        return self._units

    def _inventory(self, name: str, text: str | None) -> Inventory | None:
        topic = f"inventory {name}"
        if text is None:
            return None
        try:
            found = inventory.read(text)
        except Refusal as refusal:
            self._conditions.set(topic, f"node {name} gets no pods: {refusal.message}; {refusal.hint}")
            return None
        self._conditions.clear(topic, f"node {name} has its inventory again")
        return found

    def _put_pod(self, value: Mapping[str, Any], now_s: float) -> None:
        found = self._read(value)
        uid = found.pod.uid
        before = self.known.get(uid)
        if found.ended:
            # A pod that had failed before it was first seen says nothing of the node as it is now.
            if found.is_refused and (uid in self.assumed or (before is not None and before.node)):
                self.starts.refused(found.node)
            self.forget(uid)
            return
        if found.is_taken:
            self.starts.answered(uid)
        if before is None and found.pod.containers:
            self.scheduler.arrived(found.pod)
        self.known[uid] = found
        self._asked.pop(uid, None)
        if found.group is not None:
            self._groups[found.group.said].add(uid)
        if found.node:
            self.gangs.take(uid)
            assumed = self.assumed.pop(uid, None)
            self.reservations.forget(uid)
            placed: Placed | None = found.placed
            if placed is None and assumed is not None and assumed.node == found.node:
                placed = assumed.placed
            self.scheduler.put_pod(found.pod, found.node, placed)
        elif found.nominated and self.reservations.of(uid) is None:
            self._nominate(found, now_s)

    def _nominate(self, found: Known, now_s: float) -> None:
        """The stock scheduler ends others for this pod: what they leave is not for pods that come
        after it.
        """
        node = self.scheduler.occupancy.nodes.get(found.nominated)
        if node is not None and found.pod.containers:
            leaving = [uid for uid in node.pods if uid in self.known and self.known[uid].terminating]
            ended = self.scheduler.preempt(found.pod, {node.name: leaving}).get(node.name, leaving)
            self.reservations.keep(found.pod, node, ended, now_s)

    def _read(self, value: Mapping[str, Any]) -> Known:
        found = reading.read_pod(value, self._current_units())
        before = self.find(found.pod.uid)
        spec = members(value, "spec")
        if before is not None:
            models = before.pod.models
        elif found.pod.containers and (selectors.is_selective(spec) or found.pod.wanted.chooses_models):
            models = self._models(spec, found.pod.wanted)
        else:
            return found
        return found if models is None else replace(found, pod=replace(found.pod, models=models))

    def _models(self, spec: Mapping[str, Any], wanted: Wanted) -> frozenset[str] | None:
        """Names of the models that the pod's selectors and annotations leave; None where these are all there
        are.
        """
        every, left = set(), set()
        for node in self._nodes.values():
            if node.inventory is not None:
                models = {card.model for card in node.inventory.healthy}
                every |= models
                if selectors.selects(spec, node.labels):
                    left |= set(filter(wanted.takes_model, models))
        return None if left == every else frozenset(left)


def _lasting(inventory: Inventory | None) -> Inventory | None:
    return None if inventory is None else inventory.without_lending()


def _name(value: Mapping[str, Any]) -> str:
    return str(members(value, "metadata").get("name", ""))


def _uid(value: Mapping[str, Any]) -> str:
    return str(members(value, "metadata").get("uid", ""))
