"""The JSON Schemas (2020-12) of what crosses a boundary: requests, grants, control messages, node config.

jsonschema is imported on the first validation, by the daemon, the command line and tests; never on the create
path.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oci_specs.refusal import Refusal, printable

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError
    from jsonschema.protocols import Validator

CONTROL = "control"
NAMES = (
    "card",
    "claim",
    "container",
    "control",
    "drain",
    "gpu_config",
    "grant",
    "grant_record",
    "health",
    "inventory_card",
    "move",
    "node_config",
    "node_state",
    "policy",
    "prepare",
    "request",
    "saved",
)
# jsonschema quotes the offending value in its messages, however large it is.
_MESSAGE_MAX_CHARS = 300


def validate(name: str, obj: object) -> Any:
    """obj, unchanged, if it is what the schema `name` describes; else a Refusal that names the first fault.

    name is "request", "grant", "node_config", "control" (any request to mgpud) or "control#VERB-reply" (the
    reply to VERB).
    """
    first = first_error(name, obj)
    if first is None:
        return obj
    text = (
        first.message
        if len(first.message) <= _MESSAGE_MAX_CHARS
        else first.message[:_MESSAGE_MAX_CHARS] + "…"
    )
    what = name.replace("_", " ").replace("#", " ")
    raise Refusal(
        "bad-message" if name.startswith("control") else f"bad-{name.replace('_', '-')}",
        printable(f"{what} at {first.json_path}: {text}"),
        f"see {name.partition('#')[0]}.schema.json for what is allowed",
    )


def first_error(name: str, obj: object) -> ValidationError | None:
    """The first fault in path order, so that it is deterministic; None if obj matches the schema."""
    instance: Any = obj
    if name == CONTROL and isinstance(obj, dict) and obj.get("verb") in _verbs():
        # What the root would come to after asking of each verb whether it is this one: most of a request's
        # time.
        name = f"{CONTROL}#/$defs/{obj['verb']}"
    errors = sorted(
        _validator(name).iter_errors(instance), key=lambda error: (error.json_path, error.message)
    )
    return errors[0] if errors else None


def load(name: str) -> dict[str, Any]:
    """The schema as read from its file."""
    schema: dict[str, Any] = json.loads(Path(__file__).with_name(f"{name}.schema.json").read_bytes())
    return schema


@cache
def _verbs() -> tuple[str, ...]:
    return tuple(load(CONTROL)["properties"]["verb"]["enum"])


@cache
def _validator(name: str) -> Validator:
    from referencing import Registry, Resource

    registry: Registry[Any] = Registry().with_resources(
        (f"{each}.schema.json", Resource.from_contents(load(each))) for each in NAMES
    )
    file, separator, anchor = name.partition("#")
    validator: Validator = validator_class()(
        {"$ref": f"{file}.schema.json{separator}{anchor}"}, registry=registry
    )
    return validator


@cache
def validator_class() -> Any:
    """jsonschema's validator, for which 1.0 is no integer, as for Python and C."""
    from jsonschema import Draft202012Validator, validators

    def is_integer(_: object, instance: object) -> bool:
        return isinstance(instance, int) and not isinstance(instance, bool)

    types = Draft202012Validator.TYPE_CHECKER.redefine("integer", is_integer)
    extend: Any = validators.extend
    return extend(Draft202012Validator, type_checker=types)
