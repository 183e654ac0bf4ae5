"""A grant as a mgpud writes it down for the next one (oci_specs/schemas/grant_record.schema.json)."""

from dataclasses import asdict
from datetime import datetime
from typing import Any

from native_sched.daemon.engine_abi import NodeKind
from native_sched.daemon.grants.grants import Grant, Node, Reclaim, ReclaimState
from native_sched.daemon.node.record_file import Unreadable
from oci_specs.request import Identity
from placement.cards import CardShare

# Members that are written as they are.
_PLAIN = (
    "tenant",
    "nonce",
    "container_id",
    "rootfs",
    "qos",
    "policy",
    "advisory",
    "edits",
    "whole_cards",
    "state",
    "pid",
    "pid_start",
    "runtime_pid",
    "runtime_start",
    "lease_end_ns",
    "asked_crc32",
    "paused",
    "unaccounted_bytes",
)


def to_json(grant: Grant) -> dict[str, Any]:
    """What containerd told is left out: it tells it again."""
    return {
        **{name: getattr(grant, name) for name in _PLAIN},
        "identity": asdict(grant.identity),
        "cards": [asdict(card) for card in grant.cards],
        "claims": list(grant.claims),
        "capabilities": list(grant.capabilities),
        "chosen": grant.chosen,
        "nodes": [list(node) for node in grant.nodes],
        "program": grant.program and list(grant.program),
        "reclaimable": grant.reclaimable,
        "reclaim": {
            **asdict(grant.reclaim),
            "bytes": {str(card): size for card, size in grant.reclaim.bytes.items()},
            "processes": [list(process) for process in grant.reclaim.processes],
            "were": [[pid, list(uuids)] for pid, uuids in grant.reclaim.were.items()],
            "saved": list(grant.reclaim.saved),
        },
        "created": grant.created.isoformat(),
    }


def _program(found: Any) -> tuple[int, int] | None:
    if found is None:
        return None
    device, inode = found
    return device, inode


def _reclaim(found: Any) -> Reclaim:
    if found is None:
        return Reclaim()
    return Reclaim(
        **{
            **found,
            "state": ReclaimState(found["state"]),
            "bytes": {int(card): size for card, size in found["bytes"].items()},
            "processes": tuple((pid, start) for pid, start in found["processes"]),
            "were": {pid: tuple(uuids) for pid, uuids in found.get("were", ())},
            "saved": tuple(found.get("saved", ())),
        }
    )


def from_json(body: Any) -> Grant:
    """Unreadable when it is not what to_json() writes."""
    try:
        found = Grant(
            **{name: body[name] for name in _PLAIN},
            identity=Identity(**body["identity"]),
            cards=tuple(CardShare(**card) for card in body["cards"]),
            # Earlier mgpuds have not written these.
            reclaimable=body.get("reclaimable", False),
            reclaim=_reclaim(body.get("reclaim")),
            claims=tuple(body.get("claims", ())),
            capabilities=tuple(body.get("capabilities", ())),
            chosen=bool(body.get("chosen", False)),
            program=_program(body.get("program")),
            nodes=tuple(Node(dev, ino, NodeKind(kind), minor) for dev, ino, kind, minor in body["nodes"]),
            created=datetime.fromisoformat(body["created"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Unreadable(f"not what a grant says ({type(error).__name__}: {error})") from error
    if found.state not in ("admitted", "bound", "draining") or (found.state == "bound" and not found.pid):
        raise Unreadable("a grant in no known state")
    return found
