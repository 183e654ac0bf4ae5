"""The verbs of the control socket, joined to admission, lifecycle and reports."""

import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from native_sched.daemon.control import report, timeline
from native_sched.daemon.control.lifecycle import Lifecycle
from native_sched.daemon.control.recovery import Recovered
from native_sched.daemon.control.server import Peer, Reply, Verb
from native_sched.daemon.grants import naming
from native_sched.daemon.grants.admission import Admission, grant_document
from native_sched.daemon.grants.closed import Closed
from native_sched.daemon.grants.grants import Grant
from native_sched.daemon.grants.live_grant import LiveGrant
from native_sched.daemon.grants.live_policy import LivePolicy
from native_sched.daemon.grants.served import Served
from native_sched.daemon.log import LOG
from native_sched.daemon.node import process_id
from native_sched.daemon.reclaim.reclaim import Reclaimer
from oci_specs import vocabulary
from oci_specs.claim import Claim
from oci_specs.refusal import Refusal, quoted


@dataclass(frozen=True, kw_only=True)
class Node:
    """The node that one mgpud serves, fixed while it runs. closed: cards that get no new container, now.
    drain: CardWatch's.
    """

    driver: str
    driver_version: str
    rm_table_override: str | None = None
    listener_path: str
    socket: str
    recovered: Recovered = field(default_factory=Recovered)
    closed: Closed = field(default_factory=Closed)
    drain: Callable[..., None] = lambda cards, *, drained: None


class Arbiter:
    """One brain: it decides, hook and runtime carry."""

    def __init__(
        self,
        node: Node,
        served: Served,
        admission: Admission,
        lifecycle: Lifecycle,
        reclaimer: Reclaimer | None = None,
    ) -> None:
        self._reclaimer = reclaimer
        self._node = node
        self._served = served
        self._admission = admission
        self._lifecycle = lifecycle
        self._live_grant = LiveGrant(served)
        self._live_policy = LivePolicy(served)

    def verbs(self) -> dict[str, Verb]:
        return {
            "admit": self.admit,
            "bind": self.bind,
            "release": self.release,
            "list": self.list,
            "inventory": self.inventory,
            "health": self.health,
            "set": self.set,
            "evict": self.evict,
            "resume": self.resume,
            "policy": self.policy,
            "drain": self.drain,
            "timeline": self.timeline,
            "claims": self.claims,
        }

    def admit(self, message: Mapping[str, Any], peer: Peer) -> Reply:
        runtime_pid = message.get("runtime_pid", peer.pid)
        asked = f"{zlib.crc32(json.dumps(message, sort_keys=True).encode('ascii')):08x}"
        grant = self._asked_before(message["container_id"], asked, runtime_pid)
        if grant is None:
            grant = self._admission.admit(message)
            if grant is None:
                return {"action": "pass"}
            if not self._served.engine.driver_alive:
                raise Refusal(
                    "driver-lost",
                    "the GPU driver no longer answers mgpud",
                    "load the driver again: mgpud follows by itself",
                )
            self._refuse_beside_lost()
            grant.asked_crc32 = asked
            self._lifecycle.begin(grant, runtime_pid, self._served.config.lease_seconds)
            self._tell_beside(grant, is_placed=vocabulary.PLACEMENT in message["annotations"])
        document = grant_document(grant, listener_path=self._node.listener_path, socket=self._node.socket)
        return {"action": "grant", "grant": document}

    def _tell_beside(self, grant: Grant, *, is_placed: bool) -> None:
        """An annotation of the pod reaches each of its containers, wanted or not: init, sidecar, debug. In a
        pod that was placed it reaches those that have limits alone.
        """
        who = grant.identity
        others = sorted(
            other.identity.container
            for other in self._served.grants
            if other.state != "draining"
            and (other.identity.namespace, other.identity.pod) == (who.namespace, who.pod)
            and other.identity.container != who.container
        )
        if who.pod and others and grant.cards and not is_placed:
            LOG.info(
                "share-beside",
                container=grant.container_id,
                memory_mib=sum(card.memory_mib for card in grant.cards),
                beside=", ".join(others),
            )

    def _asked_before(self, container_id: str, asked: str, runtime_pid: int) -> Grant | None:
        """The grant that the same process asked for in the same words: the answer never reached it."""
        for grant in self._served.grants:
            if (
                (grant.container_id, grant.asked_crc32, grant.runtime_pid)
                == (container_id, asked, runtime_pid)
                and grant.state == "admitted"
                and process_id.lives(runtime_pid, grant.runtime_start)
            ):
                return grant
        return None

    def _refuse_beside_lost(self) -> None:
        for container_id in self._lifecycle.lost.values():
            raise Refusal(
                "grant-lost",
                f"what container {container_id} holds of the GPUs is not known: its grant cannot be read any more",
                "end that container, then create this one anew",
            )

    def _granted(self, message: Mapping[str, Any]) -> Grant | None:
        grant = self._served.grants.get(message["nonce"])
        if (
            grant is not None
            and message.get("state", {}).get("id", grant.container_id) != grant.container_id
        ):
            raise Refusal(
                "wrong-container",
                f"the grant belongs to container {grant.container_id}, not {quoted(message['state']['id'])}",
                "delete the container and create it anew",
            )
        return grant

    def bind(self, message: Mapping[str, Any], _peer: Peer) -> Reply:
        grant = self._granted(message)
        if grant is None:
            raise Refusal(
                "no-grant",
                "the container's reservation is unknown or has expired",
                "create the container anew; if it takes longer than the lease, raise lease_seconds",
            )
        pid = message["state"].get("pid", 0)
        if not isinstance(pid, int) or pid <= 0:
            raise Refusal(
                "bad-state", "the container's state names no process", "update the container runtime"
            )
        self._lifecycle.bind(grant, pid, restored=message["state"].get("status") == "running")
        if self._reclaimer is not None and grant.reclaim.saved:
            self._reclaimer.wake()
        return {}

    def release(self, message: Mapping[str, Any], _peer: Peer) -> Reply:
        grant = self._granted(message)
        if grant is not None:
            self._lifecycle.release(grant)
        return {}

    def list(self, _message: Mapping[str, Any], _peer: Peer) -> Reply:
        unreadable = sorted(self._lifecycle.lost.values())
        return {**report.everything(self._served, self._node.closed), "unreadable": unreadable}

    def inventory(self, _message: Mapping[str, Any], _peer: Peer) -> Reply:
        return report.inventory(self._served, self._node.closed, self._node.driver_version)

    def health(self, _message: Mapping[str, Any], _peer: Peer) -> Reply:
        node, settings = self._node, self._served.config
        return {
            **report.health(self._served, node.driver, node.driver_version),
            "rm_table_override": node.rm_table_override,
            "generation": self._served.node.now.generation,
            "recovered": asdict(node.recovered),
            "lost": sorted(self._lifecycle.lost.values()),
            "hold_ms": settings.hold_ms,
            "quiet_ms": settings.quiet_ms,
            "poll_fast_us": settings.poll_fast_us,
        }

    def set(self, message: Mapping[str, Any], _peer: Peer) -> Reply:
        changed = self._live_grant.change(message)
        return {"container": report.container(self._served, changed, self._node.closed.lost)}

    def evict(self, message: Mapping[str, Any], _peer: Peer) -> Reply:
        """Begins it; `list` tells when it is done."""
        grant = naming.find(list(self._served.grants), message["container"])
        if self._reclaimer is not None:
            self._reclaimer.ask_evict(grant, self._node.driver_version)
        return {"container": report.container(self._served, grant, self._node.closed.lost)}

    def resume(self, message: Mapping[str, Any], _peer: Peer) -> Reply:
        grant = naming.find(list(self._served.grants), message["container"])
        if self._reclaimer is not None:
            self._reclaimer.ask_resume(
                grant,
                message.get("gpus", ()),
                driver_version=self._node.driver_version,
                closed=self._node.closed,
            )
        return {"container": report.container(self._served, grant, self._node.closed.lost)}

    def drain(self, message: Mapping[str, Any], _peer: Peer) -> Reply:
        """Begins it, or ends it; `list` tells what is released."""
        there = [card.index for card in self._served.cards]
        for card in message["cards"]:
            if card not in there:
                raise Refusal(
                    "unknown-card",
                    f"this node has no GPU {card}",
                    f"its GPUs are: {', '.join(map(str, there)) or 'none'}",
                )
        try:
            self._node.drain(message["cards"], drained=message["drained"])
        except OSError as error:
            raise Refusal(
                "not-recorded",
                f"mgpud cannot write down which GPUs are drained ({error.strerror})",
                "make room in its folder, or mount it writable, then try again",
            ) from error
        return {}

    def policy(self, message: Mapping[str, Any], _peer: Peer) -> Reply:
        return self._live_policy.answer(message)

    def claims(self, message: Mapping[str, Any], _peer: Peer) -> Reply:
        """Both halves do nothing the second time; without either it only tells."""
        claims = self._admission.claims
        if "prepare" in message:
            claims.prepare(Claim.from_json(message["prepare"]))
        if "unprepare" in message:
            claims.unprepare(message["unprepare"])
        return {"claims": [claim.to_json() for claim in claims]}

    def timeline(self, message: Mapping[str, Any], _peer: Peer) -> Reply:
        return timeline.since(self._served.engine, message["since"])
