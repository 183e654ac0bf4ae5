"""What the kernel says of NVIDIA's open files: epoll and kcmp, fanotify, counts, mappings of registers."""

import array
import ctypes
import errno
import mmap
import os
import select
import socket
import struct
import threading
from pathlib import Path

from lab.claims import decides
from lab.tests.nv import DEVICE, MIB, SUBDEVICE, Client, in_child, map_status, mapped, of_card
from tests.gpu import rm
from tests.gpu.backend import Nvidia
from tests.gpu.own_client import OwnClient
from tests.support import rm_numbers as numbers

LIBC = ctypes.CDLL(None, use_errno=True)
KCMP, KCMP_FILE, KCMP_EPOLL_TFD = 312, 0, 7
FAN_CLOSE, FAN_NONBLOCK, FAN_REPORT_TID, FAN_REPORT_FID, FAN_MARK_ADD = 0x8 | 0x10, 0x2, 0x100, 0x200, 0x1


class Slot(ctypes.Structure):
    _fields_ = (("efd", ctypes.c_uint32), ("tfd", ctypes.c_uint32), ("toff", ctypes.c_uint32))


def compared(instance: select.epoll, number: int, fd: int) -> int:
    """kcmp's order of the file and the one in the instance; a negative errno."""
    slot = Slot(instance.fileno(), number, 0)
    ctypes.set_errno(0)
    said = LIBC.syscall(
        KCMP, os.getpid(), os.getpid(), KCMP_EPOLL_TFD, ctypes.c_ulong(fd), ctypes.byref(slot)
    )
    return -ctypes.get_errno() if said < 0 else int(said)


def registration(fd: int) -> tuple[select.epoll, int]:
    ours = os.dup(fd)
    instance = select.epoll()
    instance.register(ours, select.EPOLLET)
    os.close(ours)
    return instance, ours


@decides("epoll and kcmp as above: identity, no pinning, end with descriptors, mappings, messages")
def epoll_names_a_file() -> None:
    for node in ("nvidiactl", "nvidia0"):
        file, other = rm.node(node), rm.node(node)
        instance, number = registration(file)
        assert compared(instance, number, file) == 0, node
        duplicate = os.dup(file)
        assert compared(instance, number, duplicate) == 0
        assert compared(instance, number, other) in (1, 2)
        one, two = socket.socketpair()
        one.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [file]))])
        os.close(file)
        os.close(duplicate)
        assert compared(instance, number, other) in (1, 2), "a message holds it"
        _, ancillary, _, _ = two.recvmsg(1, 64)
        back = struct.unpack("<i", ancillary[0][2][:4])[0]
        assert compared(instance, number, back) == 0
        os.close(back)
        assert compared(instance, number, other) == -errno.ENOENT, "its last close ends the reference"
        os.close(other)


@decides("the kernel tells of its last close, in the thread that makes it")
def final_close_is_notified() -> None:
    listener = LIBC.fanotify_init(FAN_REPORT_TID | FAN_REPORT_FID | FAN_NONBLOCK, os.O_RDONLY)
    assert listener >= 0, os.strerror(ctypes.get_errno())
    assert (
        LIBC.fanotify_mark(listener, FAN_MARK_ADD, ctypes.c_uint64(FAN_CLOSE), -100, b"/dev/nvidia-uvm") == 0
    )
    uvm = rm.node("nvidia-uvm")
    held = os.dup(uvm)
    os.close(uvm)
    try:
        raise AssertionError(f"a close that was not the last is told: {os.read(listener, 4096)!r}")
    except BlockingIOError:
        pass
    closing = threading.Thread(target=os.close, args=(held,))
    closing.start()
    closing.join()
    event = os.read(listener, 4096)
    mask, fd, pid = struct.unpack_from("<Qii", event, 8)
    assert mask & FAN_CLOSE
    assert pid == closing.native_id != os.getpid()
    if fd >= 0:
        os.close(fd)
    os.close(listener)


@decides(
    "resource0 can be mapped where the kernel is not locked down and is built without "
    "IO_STRICT_DEVMEM; Debian's is built with it, and says EINVAL"
)
def registers_are_mapped_where_the_kernel_lets() -> None:
    """Debian's kernels are built with IO_STRICT_DEVMEM: there nvidia.ko's registers are "
    "its own, to root too."""
    [bar, *_] = sorted(Path("/sys/bus/pci/drivers/nvidia").glob("*/resource0"))
    with open(bar, "rb") as file:
        try:
            mmap.mmap(file.fileno(), 4096, mmap.MAP_SHARED, mmap.PROT_READ)
            said = 0
        except OSError as error:
            said = error.errno or 0
    relaxed = "iomem=relaxed" in Path("/proc/cmdline").read_text()
    assert said == (0 if relaxed else errno.EINVAL)


@decides(
    "RM maps all of BAR0 by NV01_MEMORY_LOCAL_PRIVILEGED for a privileged client, also where resource0 cannot be"
)
def registers_are_mapped_by_rm() -> None:
    """NV_PMC_BOOT_0 is there, and to a client of no rights nothing is."""
    [bar, *_] = sorted(Path("/sys/bus/pci/drivers/nvidia").glob("*/resource0"))
    size = bar.stat().st_size
    client = Client()
    handle = client.must_alloc(DEVICE, numbers.NV01_MEMORY_LOCAL_PRIVILEGED)
    view, _ = mapped(client, handle, of_card(client), size, mmap.PROT_READ)
    (boot,) = struct.unpack_from("<I", view, 0)
    status, arch = client.control(SUBDEVICE, numbers.NV2080_CTRL_CMD_MC_GET_ARCH_INFO, bytes(16))
    architecture, implementation = struct.unpack_from("<2I", arch)
    assert status == 0
    assert (boot >> 24 & 0x1F, boot >> 20 & 0xF) == (architecture >> 4, implementation), hex(boot)
    view.close()
    # As the kit for a real card reads them.
    with OwnClient(Nvidia()) as own:
        assert own.register(0)() == boot

    def by_a_user() -> int:
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)
        theirs = Client()
        status, object_ = theirs.alloc(DEVICE, numbers.NV01_MEMORY_LOCAL_PRIVILEGED)
        return status or map_status(theirs, object_, of_card(theirs), size)

    assert in_child(by_a_user) == numbers.NV_ERR_PROTECTION_FAULT
    client.close()


@decides(
    "the mapping is at offset 0 of the file and stays after its close",
    "epoll and kcmp as above: identity, no pinning, end with descriptors, mappings, messages",
)
def mapping_stays() -> None:
    client = Client()
    handle = client.memory(MIB, rm.MEMORY_HOST, attr=1 << 25)
    file = rm.node("nvidiactl")
    instance, number = registration(file)
    view, _ = mapped(client, handle, file)
    assert compared(instance, number, client.ctl) in (1, 2), "the mapping holds it"
    view.close()
    assert compared(instance, number, client.ctl) == -errno.ENOENT
    view, _ = mapped(client, handle, rm.node("nvidiactl"))
    view[0:4] = b"abcd"
    again, _ = mapped(client, handle, rm.node("nvidiactl"))
    assert again[0:4] == b"abcd"
    client.close()
    assert view[0:4] == b"abcd", "the mapping holds its file, and the file what it maps"


@decides("video memory maps through the card's node, the host's through the control node")
def nodes_of_mappings() -> None:
    client = Client()
    host, video = client.memory(MIB, rm.MEMORY_HOST, attr=1 << 25), client.memory(MIB)

    mapped(client, host, rm.node("nvidiactl"))
    mapped(client, video, of_card(client))
    for handle, fd in ((video, rm.node("nvidiactl")), (host, of_card(client))):
        try:
            mapped(client, handle, fd)
        except (rm.RmError, OSError):
            continue
        raise AssertionError(f"{handle:#x} was mapped by the other node")
    client.close()


@decides("only the process that made a client maps its memory")
def mapping_is_of_the_clients_process() -> None:
    client = Client()
    handle = client.memory(MIB, rm.MEMORY_HOST, attr=1 << 25)

    def by_another() -> int:
        return map_status(client, handle, rm.node("nvidiactl"))

    assert in_child(by_another) != 0
    client.close()
