"""RM_USER_SHARED_DATA: the page in which the driver tells the use of a card, natively and under mgpu."""

import mmap

from lab.claims import decides
from lab.guest import boxes
from lab.guest.inside import PAGE_BEGIN
from lab.tests.loaded import params_bytes, version
from lab.tests.nv import DEVICE, SUBDEVICE, Client, mapped
from lab.tests.under_mgpu import LIMIT_S
from tests.gpu import rm
from tests.support.rm_numbers import (
    NV_ERR_INVALID_OBJECT_PARENT,
    NV_ERR_NOT_SUPPORTED,
    RM_USER_SHARED_DATA,
)

POLLED_SINCE = "545"


@decides(
    "RM_USER_SHARED_DATA is made below a subdevice alone, and shows the size of BAR1 where it is mapped"
)
def made_below_a_subdevice() -> None:
    client = Client()
    params = bytes(params_bytes("RM_USER_SHARED_DATA"))
    assert client.alloc(DEVICE, RM_USER_SHARED_DATA, params)[0] == NV_ERR_INVALID_OBJECT_PARENT
    page = client.must_alloc(SUBDEVICE, RM_USER_SHARED_DATA, params)
    view, _ = mapped(client, page, rm.node("nvidiactl"), PAGE_BEGIN, mmap.PROT_READ)
    told = bytes(view[:PAGE_BEGIN])
    assert any(told[8:]), told.hex()
    client.close()


@decides(long=True, limit_s=LIMIT_S)
def whole_cards_have_the_drivers_page() -> None:
    """A share has zeros."""
    product, polled = boxes.product(), NV_ERR_NOT_SUPPORTED if version() < POLLED_SINCE else 0
    for memory_mib, expected in ((512, (False, NV_ERR_NOT_SUPPORTED)), (None, (True, polled))):
        with product.container(boxes.inside("page"), memory_mib=memory_mib) as box:
            said = boxes.told(box)
            assert (said["shows"], said["polled"]) == expected, (memory_mib, said)
