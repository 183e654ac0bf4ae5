"""Opaque parameters for this driver: kind GpuConfig of mgpu.dev/v1 (schemas/gpu_config.schema.json)."""

from collections.abc import Iterable
from typing import Any

from cluster.dra import DRIVER
from oci_specs import schemas
from oci_specs.refusal import Refusal

Json = dict[str, Any]


def merged(configs: Iterable[Json], request: str) -> Json:
    """Parameters of an allocation's `config` for a request, MAIN or MAIN/SUB.

    A claim's own come after its class's and win, member by member. Refusal for what the schema forbids, also
    for requests of another name: nothing is passed over that somebody wrote.
    """
    main = request.partition("/")[0]
    found: Json = {}
    for config in sorted(configs, key=lambda each: each.get("source") != "FromClass"):
        opaque = config.get("opaque") or {}
        if opaque.get("driver") != DRIVER:
            continue
        parameters = _checked(opaque.get("parameters"))
        if not config.get("requests") or {main, request} & set(config["requests"]):
            found |= parameters
    return found


def _checked(parameters: object) -> Json:
    error = schemas.first_error("gpu_config", parameters)
    if error is not None:
        message = error.message if len(error.message) <= 200 else error.message[:200] + "…"
        raise Refusal(
            "bad-parameters",
            f"the claim's parameters for {DRIVER} at {error.json_path}: {message}",
            "write apiVersion mgpu.dev/v1, kind GpuConfig, and class, policy or containers beside them",
        )
    assert isinstance(parameters, dict)  # the schema says so
    return parameters
