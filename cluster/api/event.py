"""Objects of the events API, as `kubectl describe` shows them."""

from typing import Any

from cluster.api.kinds import EVENT

# The API server's limit.
NOTE_MAX_BYTES = 1024


def pod_reference(namespace: str, name: str, uid: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": name, "uid": uid}


def event(
    name: str, regarding: dict[str, Any], *, time: str, reason: str, action: str, note: str, **members: Any
) -> dict[str, Any]:
    """An Event in the namespace of what it regards. time: as a MicroTime. members: the others of the kind, of
    which type, reportingController and reportingInstance have to be there.
    """
    return {
        "apiVersion": EVENT.api_version,
        "kind": EVENT.name,
        "metadata": {"name": name, "namespace": regarding["namespace"]},
        "eventTime": time,
        "reason": reason,
        "action": action,
        "note": note.encode()[:NOTE_MAX_BYTES].decode(errors="ignore"),
        "regarding": regarding,
        **members,
    }
