"""Files of nvidia-uvm: what another process may do on them, what they hold, and what tells of them."""

import mmap
import os
import re
import struct
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from lab.claims import decides
from lab.tests.answers import REGISTERED
from lab.tests.nv import COMPOSE, DEVICE, MIB, REVOKE, SHARE_ALL, SPACE, Client, Uvm, in_child, vaspace
from tests.support import rm_numbers as numbers

NO_GPU, BASE, TRACING = bytes(16), 0x200000000, Path("/sys/kernel/tracing")
DISABLE_HMM, MULTI_PROCESS = 1, 2


class Registered:
    """A client, a file of nvidia-uvm that has the GPU, and an address space on it."""

    def __init__(self, registers: bool = True, client: Client | None = None) -> None:
        self.client = client or Client()
        self.uvm = Uvm()
        self.uuid = self.client.uuid()
        assert self.uvm.hold_memory() == 0
        status, self.vaspace = self.client.alloc(DEVICE, SPACE, vaspace())
        assert status == 0
        assert self.uvm.register_gpu(self.uuid, self.client) == 0
        if registers:
            assert self.uvm.register_space(self.uuid, self.client, self.vaspace) == 0

    def map(self, handle: int, base: int, size: int) -> int:
        return self.uvm.map_external(self.uuid, self.client, handle, base, size, ctl=-1)

    def close(self) -> None:
        self.uvm.close()
        self.client.close()


def initialized(uvm: Uvm, flags: int) -> int:
    return uvm.call(numbers.UVM_INITIALIZE, bytearray(struct.pack("<QII", flags, 0, 0)), 8)


@decides("UNMAP_EXTERNAL of an empty range tells whether a file is initialised")
def empty_unmap_tells_of_initialisation() -> None:
    uvm = Uvm(uvm_initialize=False)
    before = uvm.unmap_external(NO_GPU, 0, 0)
    assert initialized(uvm, 0) == 0
    after = uvm.unmap_external(NO_GPU, 0, 0)
    assert before != after, (hex(before), hex(after))
    assert in_child(lambda: uvm.unmap_external(NO_GPU, 0, 0)) == after, "any process may ask"
    uvm.close()


def waited_for(call: Callable[[], int]) -> list[str]:
    """Locks for which nvidia-uvm may wait in it, as the kernel traces functions."""
    if not (TRACING / "trace").exists():
        subprocess.run(["mount", "-t", "tracefs", "tracefs", TRACING], check=True)
    settings = {"set_ftrace_filter": "down_read down_write mutex_lock", "set_ftrace_pid": str(os.getpid())}
    for name, value in (
        *settings.items(),
        ("current_tracer", "function"),
        ("tracing_on", "1"),
        ("trace", ""),
    ):
        (TRACING / name).write_text(value)
    call()
    # What reads it is traced too.
    (TRACING / "tracing_on").write_text("0")
    said = (TRACING / "trace").read_text()
    for name, value in (("current_tracer", "nop"), *((name, "") for name in settings)):
        (TRACING / name).write_text(value)
    return re.findall(r": (\S+) <-uvm_", said)


@decides("UNMAP_EXTERNAL of an empty range takes no lock")
def empty_unmap_takes_no_lock() -> None:
    uvm = Uvm()
    assert waited_for(lambda: uvm.unmap_external(NO_GPU, BASE, 2 * MIB)) != []
    assert waited_for(lambda: uvm.unmap_external(NO_GPU, 0, 0)) == []
    uvm.close()


@decides("PAGEABLE_MEM_ACCESS says that a file is initialised")
def pageable_access_tells_of_initialisation() -> None:
    uvm = Uvm(uvm_initialize=False)
    assert uvm.call(numbers.UVM_PAGEABLE_MEM_ACCESS, bytearray(8), 4) != 0
    assert initialized(uvm, DISABLE_HMM) == 0
    assert uvm.call(numbers.UVM_PAGEABLE_MEM_ACCESS, bytearray(8), 4) == 0
    uvm.close()


@decides("a second UVM_INITIALIZE, by another process, compares the flags and does nothing else")
def second_initialize() -> None:
    uvm = Uvm(uvm_initialize=False)
    assert initialized(uvm, DISABLE_HMM) == 0
    assert in_child(lambda: initialized(uvm, DISABLE_HMM)) == 0
    assert in_child(lambda: initialized(uvm, 0)) != 0
    assert in_child(lambda: initialized(uvm, DISABLE_HMM | MULTI_PROCESS)) != 0
    assert initialized(uvm, DISABLE_HMM) == 0
    uvm.close()


@decides("UNMAP_EXTERNAL looks for the range before the GPU")
def unmap_looks_for_the_range_first() -> None:
    uvm = Uvm()
    outside = uvm.unmap_external(NO_GPU, BASE, 2 * MIB)
    assert uvm.create_range(BASE, 2 * MIB) == 0
    inside = uvm.unmap_external(NO_GPU, BASE, 2 * MIB)
    assert inside == numbers.NV_ERR_INVALID_DEVICE, hex(inside)
    assert outside not in (0, inside), hex(outside)
    uvm.close()


@decides(
    "UVM takes an address space on a file alone on which UVM_MM_INITIALIZE was called", whatever=REGISTERED
)
def address_space_needs_memory() -> None:
    one = Client()
    uvm = Uvm()
    _, handle = one.alloc(DEVICE, SPACE, vaspace())
    assert uvm.register_gpu(one.uuid(), one) == 0
    assert uvm.register_space(one.uuid(), one, handle) != 0
    assert uvm.hold_memory() == 0
    assert uvm.register_space(one.uuid(), one, handle) == 0
    uvm.close()
    one.close()


@decides(
    "REGISTER_GPU_VASPACE on a duplicate, by another process, of an address space that is "
    "shared with everybody",
    whatever=REGISTERED,
)
def address_space_on_behalf() -> None:
    one = Registered(registers=False)

    def register() -> int:
        return one.uvm.register_space(one.uuid, one.client, one.vaspace, fd=os.dup(one.uvm.fd))

    assert in_child(register) == numbers.NV_ERR_INSUFFICIENT_PERMISSIONS, "SHARE is needed"
    assert one.client.share(one.vaspace, SHARE_ALL, action=COMPOSE) == 0
    assert in_child(register) == 0
    assert one.client.share(one.vaspace, SHARE_ALL, action=COMPOSE | REVOKE) == 0
    one.close()


@decides(
    "MAP_EXTERNAL_ALLOCATION on a duplicate, by another process, of an object that is shared with everybody",
    "MAP_EXTERNAL_ALLOCATION and REGISTER_CHANNEL look nothing up by the descriptor of the control file",
    whatever=REGISTERED,
)
def mapping_on_behalf() -> None:
    one = Registered()
    handle = one.client.memory(2 * MIB)
    assert one.uvm.create_range(BASE, 2 * MIB) == 0
    assert in_child(lambda: one.map(handle, BASE, 2 * MIB)) == numbers.NV_ERR_INSUFFICIENT_PERMISSIONS
    assert one.client.share(handle, SHARE_ALL, action=COMPOSE) == 0
    assert in_child(lambda: one.map(handle, BASE, 2 * MIB)) == 0, (
        "its descriptor of the control file is not read"
    )
    assert one.client.share(handle, SHARE_ALL, action=COMPOSE | REVOKE) == 0
    assert one.client.pid_info(os.getpid()) == (0, 2 * MIB, 0), "a mapped name is owned, and counted once"
    one.close()


@decides(
    "UVM_FREE and UNMAP_EXTERNAL on a duplicate, by another process than the one that initialised the file",
    "a mapping of nvidia-uvm keeps the memory when its object is freed, until it is unmapped",
    "GET_PID_INFO counts memory that nvidia-uvm alone has for no process",
    whatever=REGISTERED,
)
def ends_on_behalf() -> None:
    one = Registered()
    before = one.client.free_bytes()
    for base in (BASE, BASE + 64 * MIB):
        handle = one.client.memory(16 * MIB)
        assert one.uvm.create_range(base, 16 * MIB) == 0
        assert one.map(handle, base, 16 * MIB) == 0
        assert one.client.free(handle) == 0
    assert before - one.client.free_bytes() >= 32 * MIB, "a mapping outlives its object"
    assert one.client.pid_info(os.getpid()) == (0, 0, 0), "and no process has it"
    assert in_child(lambda: one.uvm.unmap_external(one.uuid, BASE, 16 * MIB)) == 0
    assert before - one.client.free_bytes() < 32 * MIB
    assert in_child(lambda: one.uvm.free(BASE + 64 * MIB, 16 * MIB)) == 0
    assert before - one.client.free_bytes() < 16 * MIB
    one.close()


@decides("UVM_FREE has let go of the memory when it returns", whatever=REGISTERED)
def free_lets_go() -> None:
    one = Registered()
    assert one.uvm.create_range(BASE, 32 * MIB) == 0
    handle = one.client.memory(32 * MIB)
    assert one.map(handle, BASE, 32 * MIB) == 0
    assert one.client.free(handle) == 0
    held = one.client.free_bytes()
    assert one.uvm.free(BASE, 32 * MIB) == 0
    assert one.client.free_bytes() - held >= 32 * MIB
    one.close()


@decides("a file of nvidia-uvm may be closed by another process than its last user", whatever=REGISTERED)
def closed_by_another() -> None:
    watch = Client()
    one = Registered()
    handle = one.client.memory(16 * MIB)
    assert one.uvm.create_range(BASE, 16 * MIB) == 0
    assert one.map(handle, BASE, 16 * MIB) == 0
    assert one.client.free(handle) == 0
    held = watch.free_bytes()
    told, tells = os.pipe()
    pid = os.fork()
    if not pid:
        os.read(told, 1)
        os._exit(0)
    one.uvm.close()
    one.client.close()
    assert watch.free_bytes() - held < 16 * MIB, "the child has its files"
    os.write(tells, b"x")
    os.waitpid(pid, 0)
    assert watch.free_bytes() - held >= 16 * MIB


@decides(
    "UVM takes no channel on a file that has not its address space, and an address space on one file",
    whatever=REGISTERED,
)
def address_space_is_on_one_file() -> None:
    one = Registered()
    other = Uvm()
    assert other.hold_memory() == 0
    assert other.register_gpu(one.uuid, one.client) == 0
    assert other.register_space(one.uuid, one.client, one.vaspace) != 0
    assert one.uvm.register_space(one.uuid, one.client, one.vaspace) == numbers.NV_ERR_INVALID_DEVICE
    other.close()
    one.close()


@decides("mmap() of nvidia-uvm is shared, for reading and writing, at the address that is its offset")
def managed_mappings() -> None:
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, *[ctypes.c_size_t] * 1, *[ctypes.c_int] * 3, ctypes.c_long]
    uvm = Uvm()

    def mapped(prot: int, flags: int, offset: int) -> bool:
        at = libc.mmap(BASE, 2 * MIB, prot, flags | 0x10, uvm.fd, offset)
        return bool(at == BASE)

    both = mmap.PROT_READ | mmap.PROT_WRITE
    assert not mapped(both, mmap.MAP_PRIVATE, BASE)
    assert not mapped(both, mmap.MAP_SHARED, BASE + 2 * MIB)
    assert not mapped(mmap.PROT_READ, mmap.MAP_SHARED, BASE)
    assert mapped(both, mmap.MAP_SHARED, BASE)
    assert in_child(lambda: mapped(both, mmap.MAP_SHARED, BASE)) is False, (
        "a file belongs to one process's memory"
    )
    [entry] = [link for link in Path("/proc/self/map_files").iterdir() if link.name.startswith(f"{BASE:x}-")]
    assert os.readlink(entry) == "/dev/nvidia-uvm"


@decides("/proc/PID/map_files names nvidia-uvm's node for a managed range")
def map_files_name_the_node() -> None:
    managed_mappings()
    text = Path("/proc/self/maps").read_text()
    assert re.search(rf"^{BASE:08x}-\S+ rw-s {BASE:08x} .*/dev/nvidia-uvm$", text, re.M)


@decides("MULTI_PROCESS_SHARING_MODE and DISABLE_HMM are flags that UVM takes")
def flags_of_initialize() -> None:
    for flags in (0, DISABLE_HMM, MULTI_PROCESS, DISABLE_HMM | MULTI_PROCESS):
        uvm = Uvm(uvm_initialize=False)
        assert initialized(uvm, flags) == 0, flags
        uvm.close()
    uvm = Uvm(uvm_initialize=False)
    assert initialized(uvm, 1 << 40) != 0
    uvm.close()
    with suppress(OSError):
        os.close(uvm.fd)
