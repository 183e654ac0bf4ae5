"""The names of the compute policies, as users may write them."""

from __future__ import annotations

import click

from oci_specs import forms

NAMES = ("fixed-share", "guaranteed-burst-share", "native-burst-share")
# qGPU's names and numbers for the three.
OTHER_NAMES = ("fs", "burst-share", "bs", "best-effort", "be", "0", "1", "2")

CHOICE = click.Choice((*NAMES, *OTHER_NAMES))
LISTED = f"{', '.join(NAMES)}, or another name of one of them: {', '.join(OTHER_NAMES)}."


def canonical(name: str) -> str:
    """The policy that any of CHOICE's names means, as the control protocol has it."""
    return str(forms.FORMS["policy"].read(name))
