"""What is of the node and not of one container, and outlives a mgpud: ROOT/node-state.json
(oci_specs/schemas/node_state.schema.json)."""

import time
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from native_sched.daemon.log import LOG, Log
from native_sched.daemon.node import record_file
from native_sched.daemon.node.record_file import Prepared, Unreadable

KIND = "node-state"


@dataclass(frozen=True, kw_only=True)
class State:
    """generation: how many mgpuds there were, this one included; last_tenant: the highest number given so
    far.

    policies: the operator's word for each card. config_crc32: of the last node.toml that was found good.
    contexts: what was measured of cards (contexts.py), by UUID: bytes of the graphics engine and of a copy
    engine. drained: the operator's word, by UUID, with what was known of the card (CardInfo's members).
    """

    generation: int = 0
    last_tenant: int = 0
    policies: dict[int, str] = field(default_factory=dict)
    config_crc32: str = ""
    contexts: dict[str, list[int]] = field(default_factory=dict)
    drained: dict[str, dict[str, Any]] = field(default_factory=dict)


def _to_json(state: State) -> dict[str, Any]:
    return {**asdict(state), "policies": {str(card): policy for card, policy in state.policies.items()}}


def _from_json(body: Any) -> State:
    try:
        return State(
            generation=int(body["generation"]),
            last_tenant=int(body["last_tenant"]),
            policies={int(card): str(policy) for card, policy in body["policies"].items()},
            config_crc32=str(body["config_crc32"]),
            contexts={
                str(uuid): [int(graphics), int(copies)]
                for uuid, (graphics, copies) in body.get("contexts", {}).items()
            },
            drained={str(uuid): dict(card) for uuid, card in body.get("drained", {}).items()},
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Unreadable("not what a node's state says") from error


class NodeState:
    """The document, and what it says by now."""

    def __init__(self, path: str, log: Log = LOG, *, first: bool = True) -> None:
        """first: it was not read before, so that a fault of it is new."""
        self._path = path
        self._log = log
        self._first = first
        self.now = self._load()

    def _load(self) -> State:
        try:
            _boot, body = record_file.decode(KIND, record_file.read(self._path))
            return _from_json(body)
        except FileNotFoundError:
            return State()
        except (OSError, Unreadable) as error:
            if self._first:
                what = "policies that the operator set are lost"
                self._log.error("node-state-unreadable", why=error, what=what)
            # No mgpud gave a number that high: there are not that many seconds to give them in.
            return State(last_tenant=int(time.time()))

    def prepare(self, **changed: Any) -> "NodeChange":
        """The document with these members, written and not yet in place; OSError."""
        state = replace(self.now, **changed)
        return NodeChange(self, state, Prepared(self._path, record_file.encode(KIND, _to_json(state))))

    def save(self, **changed: Any) -> None:
        """OSError, with nothing changed."""
        self.prepare(**changed).commit()

    def note(self, **changed: Any) -> None:
        """Holds from now on, and is written down if it can be."""
        try:
            self.save(**changed)
        except OSError as error:
            self._log.warning("node-state-not-recorded", why=error.strerror)
            self.now = replace(self.now, **changed)


class NodeChange:
    def __init__(self, node: NodeState, state: State, prepared: Prepared) -> None:
        self._node = node
        self._state = state
        self._prepared = prepared

    def commit(self) -> None:
        self._prepared.commit()
        self._node.now = self._state

    def abandon(self) -> None:
        self._prepared.abandon()
