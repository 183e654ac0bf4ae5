"""From an admit message to a grant, a pass, or a refusal. Decides; registers nothing."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from native_sched.daemon.engine_abi import NodeKind
from native_sched.daemon.grants import claimed, driver_files, saved
from native_sched.daemon.grants.claims import Claims
from native_sched.daemon.grants.closed import Closed
from native_sched.daemon.grants.grants import Grant, Reclaim
from native_sched.daemon.grants.refusals import LEAST_DRIVER_FOR_OTHERS, older, refuse_unevictable
from native_sched.daemon.grants.served import Served
from native_sched.daemon.node import device_nodes
from oci_specs import driver_capabilities, identity, parse, vocabulary
from oci_specs.refusal import Refusal
from oci_specs.request import Request
from placement.cards import CardShare, CardState
from placement.place import card_named, place

# What the create path takes out of a spec when it has a grant to put in instead (oci_specs/reach.py).
_REMOVED_UNDER_A_GRANT = frozenset({"device", "mount", "cdi", "hook"})

Reach = Mapping[str, str]
EditsFor = Callable[[Sequence[CardShare]], dict[str, Any]]


class Admission:
    """Applies the vocabulary, the node's config and the cards' state to one container."""

    def __init__(
        self,
        served: Served,
        edits_for: EditsFor,
        claims: Claims,
        closed: Closed | None = None,
        driver_version: str = "",
    ) -> None:
        self._driver_version = driver_version
        self.claims = claims
        self._served = served
        self._edits_for = edits_for
        self._closed = Closed() if closed is None else closed

    def admit(self, message: Mapping[str, Any]) -> Grant | None:
        """The grant for an admit message, None to let the container pass untouched, or Refusal."""
        container_id: str = message["container_id"]
        env = self._counted_env(message["annotations"], message["env"])
        named = self.claims.named(vocabulary.claims_named(message["env"]), message["annotations"])
        request = parse.request(
            message["annotations"],
            _without_visible_devices(env) if named else env,
            self._served.config,
            container_id=container_id,
        )
        if named and request is not None:
            raise Refusal(
                "claim-and-keys",
                f"the container has claim {named[0].claim}, and its annotations or variables ask for a GPU too",
                "keep one of them; annotations of a pod hold for all its containers",
            )
        advisory = self._advisory(message["reach"], bool(named or request))
        if request is None and not named and not advisory:
            return None
        self._refuse_twice(container_id)
        tenant, nonce = self._served.grants.name()
        who = identity.identify(message["annotations"], container_id)
        base = {
            "tenant": tenant,
            "nonce": nonce,
            "container_id": container_id,
            "rootfs": message["rootfs"],
            "identity": who,
            "advisory": advisory,
        }
        reclaimable = False
        every = states = self._served.card_states(self._served.grants, without=self._closed)
        had = message.get("saved")
        if had is not None:
            states = saved.cards_for(had, states)
        if named:
            qos, whole_cards, placed = claimed.place(named, states, self._served.config)
        elif request is not None:
            # On a node that does not lend memory the container gets memory of its own.
            request = replace(request, reclaimable=request.reclaimable and self._served.lends_memory)
            qos, whole_cards, reclaimable = request.qos, request.whole_cards, request.reclaimable
            self._refuse_drained(request)
            placed = place(request, states, self._served.config)
            if reclaimable:
                refuse_unevictable(self._driver_version, placed.cards, self._served.cards)
        else:
            return Grant(**base, qos="online", policy=None, cards=(), edits={})
        capabilities = driver_capabilities.granted(
            message["env"], self._served.config.supported_driver_capabilities
        )
        edits = driver_files.keep_asked(self._edits_for(placed.cards), capabilities)
        return Grant(
            **base,
            qos=qos,
            policy=placed.policy,
            cards=placed.cards,
            edits=self._with_other_nodes(edits, placed.cards, every) if reclaimable else edits,
            whole_cards=whole_cards,
            reclaimable=reclaimable,
            reclaim=Reclaim()
            if had is None
            else saved.reclaim(had, placed.cards, self._driver_version, self._served.cards),
            claims=tuple(one.key for one in named),
            capabilities=capabilities,
            chosen=request is not None and not named and not request.placed,
        )

    def _counted_env(self, annotations: Mapping[str, str], env: Mapping[str, str]) -> Mapping[str, str]:
        """The environment as far as it counts. A pod's asks for nothing: quotas and schedulers look
        at limits and annotations. Where these ask for nothing either, that is told.
        """
        if self._served.config.environment_in_pods or not identity.is_of_pod(annotations):
            return env
        asking = vocabulary.asking_variables(env)
        claims = vocabulary.claims_named(env)
        if (
            asking
            and not claims
            and not vocabulary.names_gpu(annotations, {})
            and vocabulary.PLACEMENT not in annotations
        ):
            raise Refusal(
                "environment-in-pod",
                f"{asking[0]} is a variable of the container, and in pods variables ask for nothing",
                "write a limit such as mgpu.dev/memory-mib, or set environment_in_pods = true in node.toml",
            )
        return {}

    def _with_other_nodes(
        self, edits: dict[str, Any], cards: Sequence[CardShare], states: Sequence[CardState]
    ) -> dict[str, Any]:
        """With the nodes of further cards of its model, onto which the container may be restored. They serve
        it nothing before: a node that is made later would need another rule of its device cgroup.
        """
        granted, models = {card.index for card in cards}, {card.name for card in cards}
        others = [
            CardShare(
                index=card.index,
                minor=card.minor,
                uuid=card.uuid,
                name=card.name,
                memory_mib=0,
                core_percent=None,
            )
            for card in states
            if card.name in models and card.index not in granted
        ]
        if not others or older(self._driver_version, LEAST_DRIVER_FOR_OTHERS):
            return edits
        try:
            theirs = self._edits_for(others).get("devices", [])
        except Refusal:  # no CDI spec names one of them
            return edits
        wanted = {(NodeKind.CARD, card.minor) for card in others}
        nodes = [device for device in theirs if device_nodes.kind_of(device["path"]) in wanted]
        return {**edits, "devices": [*edits.get("devices", []), *nodes]}

    def _refuse_drained(self, request: Request) -> None:
        """Where all cards that it names, or all of the node, are closed, and one of them is drained."""
        every = self._served.card_states(()) if self._closed.drained else []
        names = (*request.candidates, *request.uuids) if every else ()
        wanted = [card_named(name, every) for name in names] or every
        for card in wanted if all(card.index in self._closed for card in wanted) else ():
            if card.index in self._closed.drained:
                raise Refusal(
                    "card-drained",
                    f"GPU {card.index} ({card.uuid}) is drained, so that it takes no new container",
                    f"mgpu undrain {card.index} takes it back in",
                )

    def _refuse_twice(self, container_id: str) -> None:
        for grant in self._served.grants:
            if grant.container_id == container_id and grant.state != "draining":
                raise Refusal(
                    "container-exists",
                    f"container {container_id} already holds a grant",
                    "delete it first, or choose another name",
                )

    def _advisory(self, reach: Sequence[Reach], asks: bool) -> bool:
        """Whether the container can get past its filter: allowed only where the node's operator said so."""
        harmless = _REMOVED_UNDER_A_GRANT if asks else {"hostpid", "capability"}
        open_ways = [way for way in reach if way["how"] not in harmless]
        if not open_ways:
            return False
        if self._served.config.allow_privileged:
            return True
        details = ", ".join(way["detail"] for way in open_ways[:3])
        if not asks:
            raise Refusal(
                "reach-without-grant",
                f"the container can reach NVIDIA devices without a grant ({details})",
                "ask for a GPU with mgpu.dev/memory-mib, or set allow_privileged = true in node.toml",
            )
        raise Refusal(
            "reach-beside-grant",
            f"the container can reach NVIDIA devices beside its grant ({details})",
            "run it unprivileged, or set allow_privileged = true in node.toml",
        )


def _without_visible_devices(env: Mapping[str, str]) -> dict[str, str]:
    """A claim names the cards, as UUIDs in an annotation do; images set the variable by themselves."""
    return {name: value for name, value in env.items() if name != vocabulary.VISIBLE_DEVICES}


def grant_document(grant: Grant, *, listener_path: str, socket: str) -> dict[str, Any]:
    """The grant as it travels to the create path (schemas/grant.schema.json)."""
    return {
        "id": grant.id,
        "nonce": grant.nonce,
        "container_id": grant.container_id,
        "class": grant.qos,
        "policy": grant.policy,
        "advisory": grant.advisory,
        "cards": [asdict(card) for card in grant.cards],
        "edits": {"devices": [], "mounts": [], "env": [], "hooks": {}, **grant.edits},
        "listener_path": listener_path,
        "socket": socket,
    }
