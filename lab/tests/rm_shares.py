"""What RM says of calls by another process, of SHARE, of duplicates and of their ends."""

import os
import signal
import struct
import time

from lab.claims import decides
from lab.tests.nv import (
    COMPOSE,
    DEVICE,
    MIB,
    REVOKE,
    SHARE_ALL,
    SHARE_CLIENT,
    SUBDEVICE,
    Client,
    in_child,
    memory,
)
from tests.gpu import rm
from tests.support import rm_numbers as numbers

ARCH, ATTACHED = numbers.NV2080_CTRL_CMD_MC_GET_ARCH_INFO, numbers.NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS
NOTHING = 0xDEADBEEF
# Of one control file, and what each has.
CLIENTS, PIECES, PIECE = 4, 24, 4 * MIB


@decides("an on-behalf call passes RM's client check")
def another_process_calls_on_the_clients_file() -> None:
    client = Client()
    assert in_child(lambda: client.control(SUBDEVICE, ARCH, bytes(16))[0]) == 0
    assert in_child(lambda: client.alloc(DEVICE, rm.MEMORY, memory(MIB))[0]) == 0

    def by_a_file_of_its_own() -> int:
        ctl = rm.node("nvidiactl")
        return client.control(client.root, ATTACHED, bytes(128), fd=ctl)[0]

    assert in_child(by_a_file_of_its_own) == numbers.NV_ERR_INVALID_CLIENT
    client.close()


@decides("REGISTER_FD may be made for the caller, with our duplicates")
def another_process_registers_a_file() -> None:
    client = Client()
    card = rm.node("nvidia0")

    def register() -> int:
        ours, control = os.dup(card), os.dup(client.ctl)
        os.close(card)
        os.close(client.ctl)
        call = rm.Call(rm.REGISTER_FD, bytearray(struct.pack("<i", control)), bytearray(), -1)
        return rm.on_file(ours, call)

    assert in_child(register) == 0
    again = rm.Call(rm.REGISTER_FD, bytearray(struct.pack("<i", client.ctl)), bytearray(), -1)
    assert rm.on_file(card, again) != 0, "it is registered already"
    os.close(card)
    client.close()


@decides("RM_ALLOC takes the size of the class's parameters, whatever size the caller names")
def sizes_of_parameters() -> None:
    client = Client()
    for size in (0, 64, 127, 128, 129):
        call = rm.alloc(client.root, DEVICE, 0xA000 + size, rm.MEMORY, memory(4096) + bytes(8))
        struct.pack_into("<I", call.outer, 0x20, size)
        assert client.make(call) == 0, size
    client.close()


@decides("the rights pointer may always be NULL")
def no_rights_are_asked_for() -> None:
    """Nothing that mgpu needs is refused to objects of clients that asked for none."""
    client, other = Client(), Client()
    handle = client.memory(MIB)
    assert client.share(handle, SHARE_ALL, action=COMPOSE) == 0
    assert in_child(lambda: Client().dup(client.root, handle)[0]) == 0
    assert other.dup(client.root, handle)[0] == 0
    client.close()
    other.close()


@decides("SHARE with COMPOSE leaves the policies that an object has, and REVOKE with it ends the one named")
def composed_policies() -> None:
    client = Client()
    handle = client.memory(MIB)
    stranger = Client()

    def duplicate(which: str) -> int:
        """By a new process: one whose client was shared with, or another."""
        return int(
            in_child(
                lambda: (
                    stranger.dup(client.root, handle)[0]
                    if which == "named"
                    else Client().dup(client.root, handle)[0]
                )
            )
        )

    # `stranger` is of this process; what another process may is what counts.
    assert duplicate("other") == numbers.NV_ERR_INSUFFICIENT_PERMISSIONS
    assert client.share(handle, SHARE_CLIENT, stranger.root, COMPOSE) == 0
    assert client.share(handle, SHARE_ALL, 0, COMPOSE) == 0
    assert duplicate("other") == 0
    assert client.share(handle, SHARE_ALL, 0, COMPOSE | REVOKE) == 0
    assert duplicate("other") == numbers.NV_ERR_INSUFFICIENT_PERMISSIONS
    assert duplicate("named") == 0, "the policy for a client has stayed"
    assert client.share(handle, SHARE_CLIENT, stranger.root, COMPOSE | REVOKE) == 0
    client.close()
    stranger.close()


@decides(
    "a DUP_OBJECT that was refused changes nothing, and one SHARE composed with its client later it is made"
)
def refused_duplicate_is_made_later() -> None:
    client = Client()
    handle = client.memory(4 * MIB)

    def refused_then_made() -> list[int]:
        other = Client()
        before = other.pid_info(os.getpid())
        first, name = other.dup(client.root, handle)
        assert other.pid_info(os.getpid()) == before
        assert other.share(name, SHARE_ALL), "there is an object of the refused handle"
        os.write(asks, struct.pack("<I", other.root))
        os.read(told, 1)
        call = struct.pack("<7I", other.root, DEVICE, name, client.root, handle, 0, 0)
        second = other.make(rm.Call(rm.DUP, bytearray(call), bytearray(), -1), 0x18)
        return [first, second, sum(other.pid_info(os.getpid()))]

    read, asks = os.pipe()
    told, tells = os.pipe()
    pid = os.fork()
    if not pid:
        root = struct.unpack("<I", os.read(read, 4))[0]
        client.share(handle, SHARE_CLIENT, root, COMPOSE)
        os.write(tells, b"x")
        os._exit(0)
    assert in_child(refused_then_made) == [numbers.NV_ERR_INSUFFICIENT_PERMISSIONS, 0, 4 * MIB]
    os.waitpid(pid, 0)
    client.close()


def duplicated(own: Client, client: int) -> int:
    """What RM says of the attempt, as mgpud asks whether there is such a client."""
    own.next += 1
    outer = struct.pack("<7I", own.root, own.root, own.next, client, client, 0, 0)
    return own.make(rm.Call(rm.DUP, bytearray(outer), bytearray(), -1), 0x18)


@decides(
    "DUP_OBJECT of a client into the arbiter's is INVALID_OBJECT_HANDLE where there is "
    "none of that handle, and another error where there is"
)
def duplicate_of_a_client() -> None:
    own, theirs = Client(), Client()
    root = theirs.root
    there = duplicated(own, root)
    assert there not in (0, numbers.NV_ERR_INVALID_OBJECT_HANDLE), hex(there)
    assert in_child(lambda: duplicated(own, root)) == there
    theirs.close()
    assert duplicated(own, root) == numbers.NV_ERR_INVALID_OBJECT_HANDLE
    assert duplicated(own, NOTHING) == numbers.NV_ERR_INVALID_OBJECT_HANDLE
    own.close()


def filled_clients() -> tuple[int, list[int]]:
    """A process with them, and their names."""
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        ctl = rm.node("nvidiactl")
        clients = [Client(ctl=ctl) for _ in range(CLIENTS)]
        for _ in range(PIECES):
            for client in clients:
                client.memory(PIECE)
        os.write(write, struct.pack(f"<{CLIENTS}I", *(client.root for client in clients)))
        signal.pause()
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        return pid, list(struct.unpack(f"<{CLIENTS}I", pipe.read(4 * CLIENTS)))


@decides("RM forgets the clients of a control file together, when all that they had is free")
def forgotten_clients_have_nothing() -> None:
    own = Client()
    before = own.free_bytes()
    for asked in (0, CLIENTS - 1):
        pid, roots = filled_clients()
        assert before - own.free_bytes() >= CLIENTS * PIECES * PIECE
        assert numbers.NV_ERR_INVALID_OBJECT_HANDLE not in [duplicated(own, root) for root in roots]
        os.kill(pid, signal.SIGKILL)
        began, asks = time.monotonic(), 1
        while duplicated(own, roots[asked]) != numbers.NV_ERR_INVALID_OBJECT_HANDLE:
            asks += 1
        kept = before - own.free_bytes()
        print(f"forgotten after {1000 * (time.monotonic() - began):.0f} ms, by {asks} questions", flush=True)
        assert kept < PIECE, kept
        assert [duplicated(own, root) for root in roots] == [numbers.NV_ERR_INVALID_OBJECT_HANDLE] * CLIENTS
        os.waitpid(pid, 0)
    own.close()


@decides("the duplicate ends with FREE, and memory is then free")
def duplicate_ends_with_free() -> None:
    client, own = Client(), Client()
    before = own.free_bytes()
    handle = client.memory(16 * MIB)
    assert client.share(handle, SHARE_CLIENT, own.root, COMPOSE) == 0
    status, duplicate = own.dup(client.root, handle)
    assert status == 0
    assert client.free(handle) == 0
    assert before - own.free_bytes() >= 16 * MIB, "the duplicate holds it"
    assert own.free(duplicate) == 0
    assert before - own.free_bytes() < 16 * MIB
    client.close()
    own.close()


@decides("an object is another process's to duplicate by a policy alone: the default is the same process")
def default_policy() -> None:
    client = Client()
    handle = client.memory(MIB)
    same = Client()
    assert same.dup(client.root, handle)[0] == 0
    assert in_child(lambda: Client().dup(client.root, handle)[0]) == numbers.NV_ERR_INSUFFICIENT_PERMISSIONS
    client.close()
    same.close()


@decides(
    "a control whose answer RM has cached is answered on any file, and FREE of a handle that is nothing is OK"
)
def calls_that_look_at_no_client() -> None:
    client = Client()
    ctl = rm.node("nvidiactl")
    assert client.control(SUBDEVICE, ARCH, bytes(16))[0] == 0
    assert client.control(SUBDEVICE, ARCH, bytes(16), fd=ctl)[0] == 0
    assert client.control(client.root, ATTACHED, bytes(128), fd=ctl)[0] == numbers.NV_ERR_INVALID_CLIENT
    assert client.free(NOTHING) == 0
    os.close(ctl)
    client.close()


@decides("policies that a client says are inherited hold for objects made later")
def inherited_policy() -> None:
    client = Client()
    policy = struct.pack("<IIHBB", 0, 1, SHARE_ALL, COMPOSE, 0)
    status, _ = client.control(
        client.root, numbers.NV0000_CTRL_CMD_CLIENT_SET_INHERITED_SHARE_POLICY, policy
    )
    assert status == 0, hex(status)
    handle = client.memory(MIB)
    assert in_child(lambda: Client().dup(client.root, handle)[0]) == 0
    client.close()


@decides("memory is freed by the last close of the control file, in whichever process")
def final_close_frees() -> None:
    watch = Client()
    before = watch.free_bytes()
    client = Client()
    client.memory(16 * MIB)
    held = os.dup(client.ctl)
    client.close()
    assert before - watch.free_bytes() >= 16 * MIB, "a duplicate holds the file"
    pid = os.fork()
    if not pid:
        time.sleep(0.3)
        os._exit(0)
    os.close(held)
    assert before - watch.free_bytes() >= 16 * MIB, "a child holds the file"
    os.waitpid(pid, 0)
    assert before - watch.free_bytes() < 16 * MIB
    watch.close()


@decides("RM makes a client by the name in hRoot")
def named_client() -> None:
    client = Client(attach=False)
    name = client.root ^ 0x80000
    call = rm.alloc(name, 0, 0, rm.ROOT)
    assert client.make(call) == 0
    assert call.u32(8) in (0, name), hex(call.u32(8))
    call = rm.control(name, name, ATTACHED, bytes(128))
    assert client.make(call, 0x1C) == 0, "there is one of that name"
    again = rm.alloc(name, 0, 0, rm.ROOT)
    assert client.make(again) != 0, "and no second one"
    client.close()
