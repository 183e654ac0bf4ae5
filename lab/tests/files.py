"""NVIDIA's files alone: no card has to be attached."""

import os
import select
import struct
from pathlib import Path

from lab.claims import decides
from tests.gpu import rm
from tests.support.rm_numbers import NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS

UVM_REFERENCES = Path("/sys/module/nvidia_uvm/refcnt")


def references() -> int:
    return int(UVM_REFERENCES.read_text())


@decides()
def control_nodes_open() -> None:
    for name in ("/dev/nvidiactl", "/dev/nvidia-uvm"):
        os.close(os.open(name, os.O_RDWR))


@decides("NVIDIA's nodes can be polled, nvidia-uvm's cannot")
def polls() -> None:
    poller = select.epoll()
    control = os.open("/dev/nvidiactl", os.O_RDWR)
    poller.register(control, select.EPOLLIN)
    uvm = os.open("/dev/nvidia-uvm", os.O_RDWR)
    try:
        poller.register(uvm, select.EPOLLIN)
    except PermissionError:
        return
    raise AssertionError("nvidia-uvm's file was taken by epoll")


@decides("`/sys/module/nvidia_uvm/refcnt` is twice the number of open files")
def references_of_uvm() -> None:
    before = references()
    first = os.open("/dev/nvidia-uvm", os.O_RDWR)
    assert references() == before + 2
    duplicate = os.dup(first)
    assert references() == before + 2, "a duplicate is no open file"
    second = os.open("/dev/nvidia-uvm", os.O_RDWR)
    assert references() == before + 4
    os.close(first)
    assert references() == before + 4, "the duplicate holds the file"
    os.close(duplicate)
    os.close(second)
    assert references() == before


@decides(
    "RM compares a control's size before it looks for the object: a wrong one is "
    "INVALID_ARGUMENT on any object "
    "and on none"
)
def size_before_object() -> None:
    control = rm.node("nvidiactl")
    made = rm.alloc(0, 0, 0, rm.ROOT)
    rm.on_file(control, made)
    client = struct.unpack_from("<I", made.outer, 8)[0]

    def status(thing: int, size: int) -> int:
        call = rm.control(client, thing, NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS, bytes(size))
        assert rm.on_file(control, call) == 0
        return call.u32(28)

    assert status(client, 128) == rm.OK
    assert status(client, 4) == rm.INVALID_ARGUMENT
    assert status(0xDEAD, 4) == rm.INVALID_ARGUMENT
    assert status(0xDEAD, 128) != rm.INVALID_ARGUMENT
