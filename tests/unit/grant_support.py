"""A grant as it is while its container runs."""

from typing import Any

from native_sched.daemon.grants.grants import Grant
from oci_specs.request import Identity


def grant(container_id: str = "c1", **changed: Any) -> Grant:
    members: dict[str, Any] = {
        "tenant": 1,
        "nonce": container_id,
        "container_id": container_id,
        "rootfs": "/r",
        "identity": Identity(pod=None, namespace=None, container=container_id),
        "qos": "online",
        "policy": None,
        "advisory": False,
        "cards": (),
        "edits": {},
        "state": "bound",
        "pid": 7,
    }
    return Grant(**{**members, **changed})
