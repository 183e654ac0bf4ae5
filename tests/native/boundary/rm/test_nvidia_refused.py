"""What interface.def refuses is refused by the mediator too.

Commands of nvidia-uvm are notified, and so are escapes by the filter of the kit for cards.
"""

import errno
from collections.abc import Iterator

import pytest

from tests.native.nvidia_mediated import World, world
from tests.support import rm_interface, rm_numbers
from tests.support.rm_interface import Item

INTERFACE = rm_interface.read()
BRANCH = (580, 65)
# In the outer structs of RM_CONTROL and RM_ALLOC.
STATUS_AT, MADE_STATUS_AT = 0x1C, 0x28
NOT_OPEN = 200


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world(tmp_path_factory.mktemp("refused")) as made:
        yield made


def of(items: tuple[Item, ...], disposition: str) -> list[Item]:
    return [
        item for item in items if item.disposition == disposition and INTERFACE.lives_at(item.name, BRANCH)
    ]


def test_commands_of_nvidia_uvm(here: World) -> None:
    tenant = here.tenant()
    found = {
        item.name: tenant.ioctl(tenant.uvm, item.number).result for item in of(INTERFACE.uvm, "REFUSED")
    }
    assert found == dict.fromkeys(found, -errno.EPERM)
    assert len(found) > 15


def test_escapes(here: World) -> None:
    tenant = here.tenant()
    found = {}
    for item in of(INTERFACE.escapes, "REFUSED"):
        size = INTERFACE.size_at(item.size, BRANCH)
        assert size
        found[item.name] = tenant.ioctl(tenant.ctl, item.number, bytes(size)).result
    assert found == dict.fromkeys(found, -errno.EPERM)
    assert len(found) > 5


def test_controls_are_answered_with_the_status_of_their_row(here: World) -> None:
    tenant, client = here.tenant_client()
    refused = of(INTERFACE.controls, "REFUSED")
    found = {item.name: tenant.control(client, 0xD1, item.number, bytes(8)) for item in refused}
    assert {name: answer.u32(STATUS_AT) for name, answer in found.items()} == {
        item.name: rm_numbers.by_symbol()[item.status] for item in refused
    }
    assert all((answer.result, answer.through) == (0, False) for answer in found.values())
    assert len(found) > 2


def test_classes_are_answered_with_the_status_of_their_row(here: World) -> None:
    tenant, client = here.tenant_client()
    refused = of(INTERFACE.classes, "REFUSED")
    found = {item.name: tenant.alloc(client, 0xD1, 0x500, item.number, bytes(96)) for item in refused}
    assert {name: answer.u32(MADE_STATUS_AT) for name, answer in found.items()} == {
        item.name: rm_numbers.by_symbol()[item.status] for item in refused
    }
    assert all((answer.result, answer.through) == (0, False) for answer in found.values())
    assert len(found) > 9


def test_escape_that_has_to_have_a_size_is_let_through_without_one_by_nobody(here: World) -> None:
    """With a size of 0 NVIDIA's driver reads from a NULL pointer in the kernel, or writes to it."""
    tenant = here.tenant()
    numbers = {item.number for item in INTERFACE.escapes if item.sizeless}
    assert numbers == {rm_numbers.NV_ESC_WAIT_OPEN_COMPLETE, rm_numbers.NV_ESC_RM_LOCKLESS_DIAGNOSTIC}
    # To what is let through the kernel says that this is no descriptor. It ignores direction and type.
    heard = {
        (number, bits): tenant.ioctl(NOT_OPEN, bits | number).result
        for number in numbers
        for bits in (0, ord("F") << 8, 3 << 30 | ord("F") << 8)
    }
    assert heard == dict.fromkeys(heard, -errno.ENOTTY)


NUM_SUBDEVICES = rm_numbers.NV0080_CTRL_CMD_GPU_GET_NUM_SUBDEVICES


def test_controls_whose_answer_rm_keeps_are_for_the_clients_tenant_alone(here: World) -> None:
    mine, other = here.tenant(), here.tenant()
    client = mine.client()
    assert mine.control(client, 0xD0, NUM_SUBDEVICES, bytes(4)).u32(STATUS_AT) == 0
    foreign = other.control(client, 0xD0, NUM_SUBDEVICES, b"\xaa" * 4)
    assert (foreign.result, foreign.u32(STATUS_AT)) == (0, rm_numbers.NV_ERR_INVALID_CLIENT)
    assert foreign.params == b"\xaa" * 4
