"""Asking mgpud, with a hint for people at a terminal when it does not run."""

import os
from pathlib import Path
from typing import Any

from mgpu_cli import names
from oci_specs.refusal import Refusal
from runtime_hook import control


def ask(socket: Path, verb: str, **members: Any) -> dict[str, Any]:
    """mgpud's reply to a verb; Refusal when it says no or does not answer."""
    try:
        return control.call(os.fspath(socket), verb, **members)
    except Refusal as refusal:
        if refusal.code == "rootless":
            message = f"this user may not open {socket}, which mgpu's commands ask"
            raise Refusal("not-root", message, "run the command as root, as with sudo") from refusal
        if refusal.code != "mgpud-not-running":
            raise
        hint = "start it with mgpu up, or say where it runs with --root or MGPU_ROOT"
        raise Refusal(refusal.code, refusal.message, hint) from refusal


def ask_about(socket: Path, verb: str, container: str, **members: Any) -> dict[str, Any]:
    """The reply to a verb that names a container: to mgpud, or to an engine."""
    try:
        return ask(socket, verb, container=container, **members)
    except Refusal as refusal:
        known = names.whose(container) if refusal.code == "no-such-container" else container
        if known == container:
            raise
        return ask(socket, verb, container=known, **members)


def listing(socket: Path) -> dict[str, Any]:
    """What there is, with the names that engines have for containers."""
    found = ask(socket, "list")
    names.give(found["containers"])
    return found


def health(socket: Path) -> dict[str, Any] | None:
    """What mgpud says of itself; None where it does not answer."""
    try:
        return ask(socket, "health")
    except Refusal:
        return None
