"""The names of the compute policies, as users may write them."""

import click

from oci_specs import forms, vocabulary

NAMES = tuple(sorted(vocabulary.POLICIES))
# qGPU's names and numbers for them.
OTHER_NAMES = (
    *(name for name in vocabulary.QGPU_POLICIES if name not in NAMES),
    *(str(number) for number in range(len(NAMES))),
)

CHOICE = click.Choice((*NAMES, *OTHER_NAMES))
LISTED = f"{', '.join(NAMES)}, or another name of one of them: {', '.join(OTHER_NAMES)}."


def canonical(name: str) -> str:
    """The policy that any of CHOICE's names means, as the control protocol has it."""
    return str(forms.FORMS["policy"].read(name))
