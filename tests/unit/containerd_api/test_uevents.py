"""Messages about cards: the kernel's own, and the simulator's as libudev reads them."""

import asyncio
import os
import shlex
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from containerd_api import uevents
from sim import cards
from tests.support.commands import run
from tests.support.places import REPOSITORY
from tests.support.waiting import readable

# Any device will do: the kernel says again what it is, with the action that is written.
KERNELS_OWN = Path("/sys/devices/virtual/mem/null/uevent")
GROUP_KERNEL, GROUP_UDEV = 1, 2

# As the kernel says it when a driver is bound to a card, when a card goes, and when a module is loaded: the
# properties are those of pci_uevent() and module_ktype, with made-up values.
BOUND = (
    b"bind@/devices/pci0000:00/0000:00:1e.0\0ACTION=bind\0DEVPATH=/devices/pci0000:00/0000:00:1e.0\0"
    b"SUBSYSTEM=pci\0DRIVER=nvidia\0PCI_CLASS=30200\0PCI_ID=10DE:2237\0PCI_SUBSYS_ID=10DE:152F\0"
    b"PCI_SLOT_NAME=0000:00:1e.0\0SEQNUM=2371\0"
)
REMOVED = (
    b"remove@/devices/pci0000:00/0000:00:1e.0\0ACTION=remove\0DEVPATH=/devices/pci0000:00/0000:00:1e.0\0"
    b"SUBSYSTEM=pci\0PCI_CLASS=30200\0PCI_ID=10DE:2237\0SEQNUM=2372\0"
)
LOADED = b"add@/module/nvidia\0ACTION=add\0DEVPATH=/module/nvidia\0SUBSYSTEM=module\0SEQNUM=2300\0"
DISK = b"add@/devices/x/block/sda\0ACTION=add\0DEVPATH=/devices/x/block/sda\0SUBSYSTEM=block\0SEQNUM=7\0"
NETWORK = (
    b"add@/devices/pci0000:00/0000:00:05.0\0ACTION=add\0DEVPATH=/devices/pci0000:00/0000:00:05.0\0"
    b"SUBSYSTEM=pci\0PCI_ID=15B3:101E\0DRIVER=mlx5_core\0SEQNUM=8\0"
)


@pytest.mark.parametrize(
    ("data", "of_a_card"),
    [(BOUND, True), (REMOVED, True), (LOADED, True), (DISK, False), (NETWORK, False)],
)
def test_messages_about_cards_are_told_from_others(data: bytes, of_a_card: bool) -> None:
    assert uevents.is_of_a_card(uevents.parsed(data)) == of_a_card


@pytest.mark.parametrize(
    "data", [b"", b"libudev\0", b"\0\0=\0", b"libudev\0" + b"\xff" * 32 + b"x", b"a\0header=1\0b=2\0"]
)
def test_malformed_message_is_about_no_card(data: bytes) -> None:
    try:
        message = uevents.parsed(data)
    except ValueError:
        return
    assert not uevents.is_of_a_card(message)


@pytest.mark.parametrize(
    ("sender", "uid", "trusted"),
    [
        ((0, GROUP_KERNEL), 0, True),
        ((4711, GROUP_KERNEL), 0, False),
        ((4711, GROUP_UDEV), 0, True),
        ((4711, GROUP_UDEV), 1000, False),
        ((4711, GROUP_UDEV), None, False),
        ((4711, 0), 0, False),
    ],
)
def test_senders_other_than_kernel_and_udev_are_ignored(
    sender: tuple[int, int], uid: int | None, trusted: bool
) -> None:
    assert uevents.is_trusted(sender, uid) == trusted


@contextmanager
def listener() -> Iterator[socket.socket]:
    with uevents._opened() as opened:
        yield opened


def next_of(opened: socket.socket, **wanted: str) -> dict[str, str]:
    """The next message with these properties; others may come from the machine."""
    for _ in range(1000):
        assert readable(opened, 60_000), f"not heard: {wanted}"
        message = uevents._read(opened)
        if message and wanted.items() <= message.items():
            return message
    raise AssertionError(f"not heard: {wanted}")


@pytest.mark.skipif(not os.access(KERNELS_OWN, os.W_OK), reason="/sys is read-only here")
def test_kernels_own_message_is_read() -> None:
    with listener() as opened:
        KERNELS_OWN.write_text("change")
        message = next_of(opened, DEVPATH="/devices/virtual/mem/null")
    assert (message["ACTION"], message["SUBSYSTEM"], message["DEVNAME"]) == ("change", "mem", "null")


def test_simulated_card_is_heard_of(tmp_path: Path) -> None:
    with listener() as opened, cards.running(tmp_path, "a10") as card:
        assert uevents.is_of_a_card(next_of(opened, ACTION="add", SUBSYSTEM="module"))
        cards.ask(card.admin_socket, "add t4")
        # The first property behind the header: pyroute2 alone would drop it.
        message = next_of(opened, ACTION="bind", SUBSYSTEM="pci")
        assert uevents.is_of_a_card(message)
        cards.ask(card.admin_socket, "reload")
        for action in ("remove", "add"):
            next_of(opened, ACTION=action, DEVPATH="/module/nvidia")


# libudev listens only where a udev runs, which it tells by this file.
HEARS = f"""
mount -t tmpfs none /run && mkdir /run/udev && touch /run/udev/control || exit 1
exec {shlex.quote(sys.executable)} - "$1" <<'END'
import ctypes, select, sys
from pathlib import Path
from sim import cards
libudev = ctypes.CDLL("libudev.so.1")
for name in ("udev_new", "udev_monitor_new_from_netlink", "udev_monitor_receive_device"):
    getattr(libudev, name).restype = ctypes.c_void_p
for name in ("udev_device_get_action", "udev_device_get_devpath", "udev_device_get_subsystem"):
    getattr(libudev, name).restype = ctypes.c_char_p
    getattr(libudev, name).argtypes = [ctypes.c_void_p]
monitor = ctypes.c_void_p(libudev.udev_monitor_new_from_netlink(ctypes.c_void_p(libudev.udev_new()), b"udev"))
libudev.udev_monitor_enable_receiving(monitor)
with cards.running(Path(sys.argv[1]), "a10") as card:
    cards.ask(card.admin_socket, "add t4")
    while select.select([libudev.udev_monitor_get_fd(monitor)], [], [], 1)[0]:
        if device := libudev.udev_monitor_receive_device(monitor):
            print(
                libudev.udev_device_get_action(device).decode(),
                libudev.udev_device_get_devpath(device).decode(),
                libudev.udev_device_get_subsystem(device).decode(),
            )
END
"""


def test_libudev_reads_the_simulators_messages(tmp_path: Path) -> None:
    """An unmodified libudev: it checks sender, magic and header, and what each device has to have."""
    heard = run("unshare", "--mount", "sh", "-c", HEARS, "sh", tmp_path, cwd=REPOSITORY).splitlines()
    assert "add /module/nvidia module" in heard
    assert "bind /devices/pci0000:00/0000:00:0a.0 pci" in heard


def test_burst_is_one_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    monkeypatch.setattr(uevents, "_opened", lambda: ours)
    monkeypatch.setattr(uevents, "is_trusted", lambda *_: True)
    told: list[tuple[str, str]] = []

    async def hear() -> None:
        task = asyncio.create_task(uevents.watch(lambda *what: told.append(what)))
        for data in (DISK, BOUND, LOADED, NETWORK):
            theirs.send(data)
        async with asyncio.timeout(60):
            while len(told) < 2:
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.3)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    with theirs:
        asyncio.run(hear())
    assert told == [("listening", ""), ("add", "/module/nvidia")]
