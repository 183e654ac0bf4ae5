"""How many of the holder's listeners a container has: none takes those that others need.

Each exec that leaves a process behind keeps one. A container's first ones are its own, whatever others have;
more come out of what is left beside the first ones of all.
"""

# HELD_MAX of native_sched/holder/table.h.
LISTENERS_MAX = 1024
# Eight cards of 16 containers each.
CONTAINERS = 128
SURE, MOST = 4, 32
COMMON = LISTENERS_MAX - CONTAINERS * SURE
# Beyond this no container is created: its main process would be left without one.
STARTS_MAX = LISTENERS_MAX - CONTAINERS // 2


def may_have_another(mine: int, held: int) -> bool:
    """mine: of the container; held: of all."""
    return mine < SURE or (mine < MOST and held < COMMON)
