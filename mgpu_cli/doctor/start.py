"""What has to be true for a container with a GPU to start."""

from collections.abc import Iterator

from mgpu_cli.doctor.finding import Finding, Group, fail, ok, warn
from mgpu_cli.doctor.host import Host
from runtime_hook import needs


def ready(host: Host) -> Iterator[Finding]:
    found = needs.missing(host.place)
    for each in found:
        of_all = each.stops == "all"
        why = (
            "no container that asks for a GPU starts" if of_all else "containers of that engine do not start"
        )
        yield (fail if of_all else warn)(f"start-{each.name}", each.what, why, each.line)
    if not found:
        yield ok("start-ready", "all that a container with a GPU needs is there")


GROUP = Group("start", (ready,))
