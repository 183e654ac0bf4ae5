"""Annotations by which a runtime takes another filter or sends its listener elsewhere."""

from __future__ import annotations

from oci_specs.refusal import Refusal
from oci_specs.seccomp.conditions import CODE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

# crun's (crun.1): a BPF program in base64 that replaces the profile; another receiver of the listener;
# plugins that answer notifications inside crun.
REFUSED = ("run.oci.seccomp_bpf_data", "run.oci.seccomp.receiver", "run.oci.seccomp.plugins")


def check_annotations(annotations: Mapping[str, object]) -> None:
    """Raises Refusal (code "seccomp-profile") if a rewritten profile would not be the container's filter."""
    for name in REFUSED:
        if name in annotations:
            raise Refusal(
                CODE,
                f"the annotation {name} replaces the container's seccomp profile",
                "remove that annotation",
            )
