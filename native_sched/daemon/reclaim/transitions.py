"""The ways between the four states of a container's memory. docs/reclaim.md shows this table."""

from typing import Final, NamedTuple

from native_sched.daemon.grants.grants import ReclaimState

RUNNING, EVICTING, EVICTED, RESTORING = ReclaimState


class Transition(NamedTuple):
    """guard: what holds before it is written down. step: what follows then. written_first: it is not begun
    otherwise. told_first: the engine knows already.
    """

    guard: str
    step: str = ""
    written_first: bool = False
    told_first: bool = False


_BACK = "its processes are unlocked, or have ended"
TRANSITIONS: Final = {
    (RUNNING, EVICTING): Transition(
        "its processes are known, and host memory has room",
        "they are locked, then checkpointed",
        written_first=True,
    ),
    (EVICTING, EVICTING): Transition("the processes of a checkpoint are found", written_first=True),
    (EVICTING, EVICTED): Transition("its processes are checkpointed, and its GPUs free of it"),
    (EVICTING, RUNNING): Transition(_BACK),
    (EVICTED, RESTORING): Transition(
        "its room is reserved", "its processes are restored, then unlocked", told_first=True
    ),
    (EVICTED, RUNNING): Transition(_BACK),
    (RESTORING, RUNNING): Transition(_BACK),
    (RESTORING, EVICTED): Transition("a process was not restored, and all are checkpointed"),
    # What is known of it has changed.
    **{(state, state): Transition("") for state in (RUNNING, EVICTED, RESTORING)},
}
# Where the next mgpud brings all processes when some are checkpointed: the crash points.
AFTER_CRASH: Final = {EVICTING: EVICTED, EVICTED: EVICTED, RESTORING: RUNNING}
