"""What the daemon is woken for: the end of what a tenant that is to be removed still had."""

import os

from tests.native.nvidia_mediated import World
from tests.native.rm_params import CTL, ROOT
from tests.native.watching import removed
from tests.support.waiting import readable, until

FILES = 20
WAIT_MS = 60_000


def told(here: World) -> int:
    """How often, since it was last asked."""
    try:
        return int.from_bytes(os.read(here.engine.event_fd, 8), "little")
    except BlockingIOError:
        return 0


def test_files_of_a_tenant_that_is_served_end_unheard(here: World) -> None:
    tenant = here.tenant()
    tenant.client()
    before = here.engine.state(tenant.id).files
    opened = [tenant.open(CTL) for _ in range(FILES)]
    for fd in opened:
        assert tenant.alloc(0, 0, 0, ROOT, fd=fd).through
    assert here.engine.state(tenant.id).files == before + FILES
    told(here)
    for fd in opened:
        tenant.tell("close", fd)
    until(lambda: here.engine.state(tenant.id).files == before, "they are gone")
    assert told(here) == 0


def test_notification_comes_after_the_tenants_end(here: World) -> None:
    tenant = here.tenant()
    tenant.client()
    told(here)
    tenant.kill()
    while not removed(here, tenant):
        assert readable(here.engine.event_fd, WAIT_MS), "nobody says that it is over"
        told(here)
