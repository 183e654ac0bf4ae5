"""The CDI specs from which a container gets its device nodes and libraries."""

import os
from collections.abc import Iterator

from mgpu_cli.doctor.finding import Finding, Group, note, ok
from mgpu_cli.doctor.host import Host
from oci_specs import cdi
from oci_specs.refusal import Refusal
from runtime_hook import needs


def specs(host: Host) -> Iterator[Finding]:
    """None, or one that cannot be read, is said of the start."""
    kind = needs.CDI_KINDS.get(host.driver)
    try:
        names = cdi.Registry.load([os.fspath(host.path(each)) for each in host.place.cdi_folders]).names(
            kind or ""
        )
    except Refusal:
        return
    if not names:
        return
    cards = host.health["cards"] if isinstance(host.health, dict) else 0
    yield ok("cdi-specs", f"CDI specs define {len(names)} devices of {kind}", ", ".join(names))
    if len([name for name in names if name != "all"]) < cards:
        what = f"the CDI specs name fewer devices than there are GPUs ({cards})"
        yield note("cdi-fewer", what, "", needs.GENERATE)


GROUP = Group("cdi", (specs,))
