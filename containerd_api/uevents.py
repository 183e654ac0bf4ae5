"""The kernel's and udev's messages about GPUs and their driver, from the netlink family KOBJECT_UEVENT.

NVIDIA's driver sends none of its own (595.45.04 has no kobject_uevent): what comes is the kernel's, of the
module, of the PCI device and of binding the driver to it. So a message is a hint that something may have
changed, and nothing in it is believed.
"""

import asyncio
import os
import re
import socket
import struct
from collections.abc import Callable, Mapping
from contextlib import closing

from pyroute2.netlink import NETLINK_KOBJECT_UEVENT
from pyroute2.netlink.uevent import MONITOR_GROUP_KERNEL, MONITOR_GROUP_UDEV, MarshalUevent

# sd-device reads as much (MONITOR_BUFFER_SIZE is of its socket); a kernel's message has 2 KiB at most.
MESSAGE_MAX_BYTES = 16 << 10
# A burst is one hint, and however many messages there are, so many are looked at in that time.
PAUSE_S, MOST_AT_ONCE = 0.1, 200
_PROPERTIES_AT = struct.Struct("=8x8xI")
_UDEV = b"libudev\0"
_UCRED = struct.Struct("=iII")
_OF_NVIDIA = re.compile(r"/module/nvidia|/bus/pci/drivers/nvidia")


def is_of_a_card(message: Mapping[str, str]) -> bool:
    """10DE is NVIDIA's number with the PCI SIG."""
    return (
        message.get("PCI_ID", "").startswith("10DE:")
        or message.get("DRIVER") == "nvidia"
        or bool(_OF_NVIDIA.match(message.get("DEVPATH", "")))
    )


def parsed(data: bytes) -> dict[str, str]:
    """The properties of a kernel's message, or of one of udev's; ValueError when it is neither."""
    if data.startswith(_UDEV):
        if len(data) < _PROPERTIES_AT.size:
            raise ValueError("a message of udev's that is too short")
        # MarshalUevent takes the first property behind udev's header for part of it.
        data = b"udev\0" + data[_PROPERTIES_AT.unpack_from(data)[0] :]
    try:
        [message] = MarshalUevent().parse(data)
        return {name: value for name, value in message.items() if isinstance(value, str)}
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError("no message of the kernel's or udev's") from error


def is_trusted(sender: tuple[int, int], uid: int | None) -> bool:
    """As libudev has it: what comes to the kernel's group is the kernel's own, and udev is root's.

    sender: the port and the group of the message.
    """
    port, group = sender
    return uid == 0 and (port == 0 if group == MONITOR_GROUP_KERNEL else group == MONITOR_GROUP_UDEV)


def _uid(ancillary: list[tuple[int, int, bytes]]) -> int | None:
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS) and len(data) == _UCRED.size:
            return int(_UCRED.unpack(data)[1])
    return None


def _opened() -> socket.socket:
    made = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK, NETLINK_KOBJECT_UEVENT)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    made.bind((0, MONITOR_GROUP_KERNEL | MONITOR_GROUP_UDEV))
    return made


def _read(listener: socket.socket) -> dict[str, str] | None:
    """One message from a sender that counts, {} of another; None: there is none."""
    try:
        data, ancillary, _, sender = listener.recvmsg(MESSAGE_MAX_BYTES, socket.CMSG_SPACE(_UCRED.size))
    except BlockingIOError:
        return None
    try:
        return parsed(data) if is_trusted(sender, _uid(ancillary)) else {}
    except ValueError:
        return {}


async def watch(told: Callable[[str, str], None]) -> None:
    """For ever: told(action, path) once for each burst of messages about cards. OSError."""
    loop = asyncio.get_running_loop()
    with closing(_opened()) as listener:
        told("listening", "")
        while True:
            readable = asyncio.Event()
            loop.add_reader(listener.fileno(), readable.set)
            try:
                await readable.wait()
            finally:
                loop.remove_reader(listener.fileno())
            _drain(listener, told)
            await asyncio.sleep(PAUSE_S)


def _drain(listener: socket.socket, told: Callable[[str, str], None]) -> None:
    last: dict[str, str] | None = None
    try:
        for _ in range(MOST_AT_ONCE):
            if (message := _read(listener)) is None:
                break
            if is_of_a_card(message):
                last = message
    except OSError as error:
        # Some did not fit into the socket's buffer: what they were about is not known.
        told("missed", os.strerror(error.errno or 0))
    if last is not None:
        told(last.get("ACTION", ""), last.get("DEVPATH", ""))
