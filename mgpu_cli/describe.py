"""`mgpu describe CONTAINER`: everything mgpud knows of one container."""

import click

from mgpu_cli import client, options, render
from mgpu_cli.render import Container
from mgpu_cli.state import StateDir
from oci_specs.refusal import Refusal, printable, quoted


def find(containers: list[Container], wanted: str) -> Container:
    """The one container that `wanted` names: its whole id, else a name of it, else the start of its id.

    Refusal when none or several match. The order is docker's.
    """
    exact = [found for found in containers if wanted == found["container_id"]]
    by_name = [found for found in containers if printable(wanted) in _names(found)]
    by_start = [found for found in containers if found["container_id"].startswith(wanted)]
    matches = exact or by_name or by_start
    if len(matches) == 1:
        return matches[0]
    if matches:
        ids = ", ".join(found["container_id"][: render.SHORT_ID_CHARS] for found in matches)
        raise Refusal("ambiguous", f"{quoted(wanted)} names {len(matches)} containers: {ids}", "give the id")
    raise Refusal(
        "no-such-container", f"no container with a grant is called {quoted(wanted)}", "see mgpu ps"
    )


def is_named(container: Container, wanted: str) -> bool:
    """By its id, a name of it, or the start of its id."""
    return container["container_id"].startswith(wanted) or printable(wanted) in _names(container)


def _names(container: Container) -> set[str]:
    """Its possible names: NAMESPACE/POD/CONTAINER whole or from its end on, or the pod alone."""
    namespace, pod, own = (container[key] for key in ("namespace", "pod", "container"))
    forms = ((namespace, pod, own), (pod, own), (own,), (namespace, pod), (pod,))
    names = {printable("/".join(form)) for form in forms if all(form)}
    return (names | {render.name(container)}) - {""}


@click.command(short_help="Show one container.")
@click.argument("container")
@options.root
@options.output_container
def describe(container: str, state: StateDir, output: str) -> None:
    """Show one container that holds a GPU.

    CONTAINER is what mgpu ps prints: NAMESPACE/POD/CONTAINER, POD/CONTAINER, the container's or the pod's
    name, its name in Docker or podman, or the id or the start of it. ctr has no names: there it is the id.
    """
    found = find(client.listing(state.control)["containers"], container)
    if output == "json":
        render.as_json(found)
    else:
        render.container(found)
