"""What groups do on one engine of the first simulated card, by the engine's place in the card's account."""

from tests.support.arbiter import Arbiter

GRAPHICS, VIDEO = 0, -1


def run_ns(mgpu: Arbiter, engine: int, *, are_open: bool) -> dict[int, int]:
    """How long the groups that may run there, or may not, have run, by their numbers."""
    groups = mgpu.account().cards[0].engines[engine].groups
    return {group.tsg: group.run_ns for group in groups if group.open is are_open}


def done_ns(mgpu: Arbiter, engine: int) -> list[int]:
    """The work of each group that was done, the least first. None ended with an error."""
    groups = mgpu.account().cards[0].engines[engine].groups
    assert not any(group.errors for group in groups)
    return sorted(group.kernel_ns for group in groups)
