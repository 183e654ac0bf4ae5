"""Which grant an operator means."""

from collections.abc import Sequence

from native_sched.daemon.grants.grants import Grant
from oci_specs.refusal import Refusal, quoted

# Shorter beginnings of an id are more often a slip than meant.
PREFIX_MIN_CHARS = 4
_SHOWN_ID_CHARS = 12


def find(grants: Sequence[Grant], wanted: str) -> Grant:
    """The one grant with this container id, grant id or name, else of the only container of this pod, else
    whose container id begins so. Refusal when there is none, or more than one.

    A container that was created anew under its name hides the grant of its last life that is still draining.
    """
    for matches in (
        [grant for grant in grants if wanted in (grant.container_id, grant.id, grant.name)],
        [grant for grant in grants if wanted == grant.identity.pod],
        [grant for grant in grants if _begins(grant, wanted)],
    ):
        living = [grant for grant in matches if grant.state != "draining"]
        chosen = living or matches
        if len(chosen) == 1:
            return chosen[0]
        if chosen:
            ids = ", ".join(grant.container_id[:_SHOWN_ID_CHARS] for grant in chosen)
            raise Refusal(
                "ambiguous", f"{quoted(wanted)} names {len(chosen)} containers: {ids}", "give the id"
            )
    raise Refusal(
        "no-such-container",
        f"no container with a grant is called {quoted(wanted)}",
        f"give its id, the first {PREFIX_MIN_CHARS} characters of it or more, or its pod: see mgpu ps",
    )


def _begins(grant: Grant, wanted: str) -> bool:
    return len(wanted) >= PREFIX_MIN_CHARS and grant.container_id.startswith(wanted)
