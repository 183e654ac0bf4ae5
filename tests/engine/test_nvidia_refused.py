"""What rm/interface.def refuses is refused by the mediator too.

Commands of nvidia-uvm are notified, and so are escapes by the filter of the kit for cards.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator

import pytest
from nvidia_mediated import World, world

from tests.support import rm_interface
from tests.support.rm_interface import Item

pytestmark = pytest.mark.engine
INTERFACE = rm_interface.read()
BRANCH = (580, 65)


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
