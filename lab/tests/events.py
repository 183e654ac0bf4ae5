"""Events on a card's file, and what looks at them."""

import os
import select
import struct

from lab.claims import decides
from lab.tests.answers import TOLD
from lab.tests.nv import SUBDEVICE, Client, of_card
from lab.tests.open_files import registration
from tests.gpu import rm
from tests.support import rm_numbers as numbers

# NV2080_NOTIFIERS_SW, which SET_TRIGGER raises, and what the file is to hear of it.
SOFTWARE, REPEAT = 0, 2
WITHOUT_DATA = 1 << 28


def hears(client: Client, file: int) -> None:
    outer = struct.pack("<IIII", client.root, 0, file, 0)
    told = rm.Call(numbers.NV_ESC_ALLOC_OS_EVENT, bytearray(outer), bytearray(), -1)
    assert client.make(told, 0xC, file) == 0
    event = struct.pack(
        "<IIIIQ", client.root, SUBDEVICE, numbers.NV01_EVENT_OS_EVENT, SOFTWARE | WITHOUT_DATA, file
    )
    call = rm.alloc(client.root, SUBDEVICE, 0xE0E0, numbers.NV01_EVENT_OS_EVENT, event)
    assert client.make(call, fd=file) == 0
    wanted = struct.pack("<II", SOFTWARE, REPEAT).ljust(20, b"\0")
    assert client.control(SUBDEVICE, numbers.NV2080_CTRL_CMD_EVENT_SET_NOTIFICATION, wanted)[0] == 0


def pending(file: int) -> bool:
    poll = select.poll()
    poll.register(file, select.POLLIN | select.POLLPRI)
    return bool(poll.poll(0))


@decides(
    "adding a file to epoll polls it once, which takes a pending event; at a file's first call it has none",
    whatever={"NV2080_CTRL_CMD_EVENT_SET_NOTIFICATION": TOLD},
)
def epoll_takes_a_pending_event() -> None:
    client = Client()
    file = of_card(client)
    assert not pending(file), "at its first call"
    hears(client, file)
    assert not pending(file)
    for trigger in range(2):
        assert client.control(SUBDEVICE, numbers.NV2080_CTRL_CMD_EVENT_SET_TRIGGER, b"")[0] == 0
        if trigger:
            registration(file)
        assert pending(file) == (not trigger), "it was told already"
        assert not pending(file), "it is told once"
    os.close(file)
    client.close()
