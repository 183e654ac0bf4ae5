"""What the threads that watch files and tenants have come to."""

import ctypes
import errno

from tests.native.nvidia_mediated import Tenant, World
from tests.native.rm_params import CTL, ROOT
from tests.support.waiting import until


def watched(here: World, tenant: Tenant) -> None:
    """All files have been looked at from here on, and those found to have ended are gone: one that ends now
    is.
    """
    fd = tenant.open(CTL)
    assert tenant.alloc(0, 0, 0, ROOT, fd=fd).through
    files = here.engine.state(tenant.id).files
    tenant.tell("close", fd)
    until(lambda: here.engine.state(tenant.id).files < files, "that one is closed")


def removed(here: World, tenant: Tenant) -> bool:
    """Whether it could be: nothing is left of it."""
    try:
        here.engine.remove_tenant(tenant.id)
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        return False
    else:
        return True


def waits(here: World, limit_s: float) -> None:
    """How long a call waits for files that end."""
    here.lib.on_card_waits(here.engine._handle, ctypes.c_uint32(int(limit_s * 1000)))
