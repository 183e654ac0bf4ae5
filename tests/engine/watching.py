"""What the thread that watches files has come to."""

from __future__ import annotations

from nvidia_mediated import Tenant, World
from rm_params import CTL, ROOT

from tests.support.waiting import until


def watched(here: World, tenant: Tenant) -> None:
    """All files have been looked at from here on, and those found to have ended are gone: one that ends now is."""
    fd = tenant.open(CTL)
    assert tenant.alloc(0, 0, 0, ROOT, fd=fd).through
    files = here.engine.state(tenant.id).files
    tenant.tell("close", fd)
    until(lambda: here.engine.state(tenant.id).files < files, "that one is closed")
