"""The whole mediator over NVIDIA's driver: its nodes are files of a simulated card, its tenants processes."""

import ctypes
import functools
import os
import struct
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from native_sched.daemon.engine import Engine, open_engine
from native_sched.daemon.engine_abi import NO_INSTANCE, Card, NodeKind, SchedConfig, TenantClass
from oci_specs import vocabulary
from sim import cards
from sim.cards import CardProcess, running
from tests.native import engine_parts
from tests.native.nvidia_registers import Registers
from tests.native.rm_params import (
    ALLOC,
    CARD,
    CONTROL,
    CTL,
    DEVICE,
    FREE,
    MAP_FIXED,
    MIB,
    REGISTER_FD,
    ROOT,
    SUBDEVICE,
    UVM,
    UVM_INITIALIZE,
    alloc_struct,
    cmd,
)

VERSION = "580.95.05"
NO_PARAMS = -1


def on_card() -> list[Path]:
    """The sources of the seam's other side."""
    return sorted(Path(__file__).parent.glob("*_on_card.c"))


@functools.cache
def library() -> str:
    """The engine with the seam's other side."""
    return engine_parts.library("libengine.so", *on_card(), without="host.c")


@functools.cache
def tenant_program() -> str:
    out = engine_parts.folder() / "tenant"
    flags = ["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread"]
    sources = [Path(__file__).with_name(name) for name in ("nvidia_tenant.c", "tenant_maps.c")]
    subprocess.run(["gcc", *flags, "-o", out, *sources], check=True)
    return str(out)


@dataclass(frozen=True)
class Answer:
    """result: 0 or a negative errno. through: the call was continued, and made by its caller."""

    result: int
    outer: bytes
    params: bytes
    through: bool

    def u32(self, offset: int) -> int:
        return int(struct.unpack_from("I", self.outer, offset)[0])


class Tenant:
    """A process that is mediated. It has a control file and a card's file."""

    def __init__(self, world: "World", tenant: int, holder_id: int) -> None:
        self._world = world
        self.id = tenant
        self._holder_id = holder_id
        environment = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
        self._process = subprocess.Popen(
            [tenant_program(), world.card.card_socket],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            env=environment,
        )
        self.pid = self._process.pid
        self.ctl, self.card, self.uvm = self.open(CTL), self.open(CARD), self.open(UVM)
        listener = int(self.tell("filter"))
        pidfd = os.pidfd_open(self.pid)
        taken = ctypes.CDLL(None, use_errno=True).syscall(438, pidfd, listener, 0)  # pidfd_getfd
        os.close(pidfd)
        assert taken >= 0
        # As the holder keeps one for the next mgpud.
        self.listener = taken
        self.serve()
        joined = self.ioctl(self.card, REGISTER_FD, struct.pack("i", self.ctl))
        assert (joined.result, joined.through) == (0, False)

    def serve(self, tenant: int = 0) -> bool:
        """tenant: what its calls are taken for; 0: what it is."""
        return self._world.engine.add_listener(
            tenant or self.id, os.dup(self.listener), holder_id=self._holder_id
        )

    def tell(self, *what: object) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(" ".join(map(str, what)) + "\n")
        line = self._process.stdout.readline()
        assert line, "the tenant has died"
        return line.strip()

    def open(self, kind: int) -> int:
        fd, ino, name = map(int, self.tell("open", kind, 0).split())
        if kind != UVM:
            self._world.lib.on_card_file(ctypes.c_uint64(ino), ctypes.c_uint64(name), kind, 0)
        return fd

    def ioctl(
        self,
        fd: int,
        number: int,
        outer: bytes = b"",
        params: bytes = b"",
        *,
        at: int = NO_PARAMS,
        flip: bytes = b"",
    ) -> Answer:
        command = cmd(number, len(outer)) if outer else number
        return self._ioctl(fd, command, outer, params, at, flip)

    def _ioctl(
        self,
        fd: int,
        command: int,
        outer: bytes,
        params: bytes,
        at: int,
        flip: bytes,
        who: str = "",
    ) -> Answer:
        words = (outer.hex() or "-", params.hex() or "-", at, flip.hex() or "-")
        return self._answer(f"{who} ioctl".strip(), fd, f"{command:x}", *words)

    def _answer(self, *what: object) -> Answer:
        said = self.tell(*what).split()
        after = [bytes.fromhex(word.removeprefix("-")) for word in said[1:3]]
        return Answer(int(said[0]), after[0], after[1], said[-1] == "through")

    def alloc(
        self,
        client: int,
        parent: int,
        handle: int,
        class_id: int,
        params: bytes = b"",
        *,
        flip: bytes = b"",
        fd: int | None = None,
    ) -> Answer:
        outer = alloc_struct(client, parent, handle, class_id, len(params))
        at = 0x10 if params else NO_PARAMS
        return self.ioctl(self.ctl if fd is None else fd, ALLOC, outer, params, at=at, flip=flip)

    def control(self, client: int, thing: int, command: int, params: bytes) -> Answer:
        outer = struct.pack("IIIIQII", client, thing, command, 0, 0, len(params), 0)
        return self.ioctl(self.ctl, CONTROL, outer, params, at=0x10)

    def free(self, client: int, handle: int) -> Answer:
        return self.ioctl(self.ctl, FREE, struct.pack("IIII", client, client, handle, 0))

    def client(self) -> int:
        """A root client, continued, with a device 0xd0 and a subdevice 0xd1 that are executed."""
        made = self.alloc(0, 0, 0, ROOT)
        assert (made.result, made.through, made.u32(0x28)) == (0, True, 0)
        client = made.u32(8)
        for parent, handle, class_id, params in (
            (client, 0xD0, DEVICE, bytes(56)),
            (0xD0, 0xD1, SUBDEVICE, bytes(4)),
        ):
            answer = self.alloc(client, parent, handle, class_id, params)
            assert (answer.result, answer.u32(0x28), answer.through) == (0, 0, False), hex(class_id)
        return client

    def uvm_call(
        self, number: int, params: bytes, *, fd: int | None = None, flip: bytes = b"", who: str = ""
    ) -> Answer:
        """who: "aside", a new thread, which does nothing more; "again", the first of these."""
        return self._ioctl(self.uvm if fd is None else fd, number, params, b"", NO_PARAMS, flip, who)

    def uvm_initialize(
        self, fd: int | None = None, flags: int = 0, *, lands: int | None = None, who: str = ""
    ) -> Answer:
        """UVM_INITIALIZE with these flags; lands: those that the kernel reads, by default the same."""
        params = struct.pack("QII", flags, 0xFFFF, 0)
        flip = b"" if lands is None else struct.pack("Q", lands)
        return self.uvm_call(UVM_INITIALIZE, params, fd=fd, flip=flip, who=who)

    def goes_astray(
        self, on: int, *, fd: int | None = None, who: str = "", lands: int | None = None
    ) -> None:
        """INITIALIZE is called on a file, and made on the one that another thread has put in its place."""
        self.tell("astray", on)
        assert self.uvm_initialize(fd, who=who, lands=lands).through
        self.tell("astray", -1)

    def raced(self, number: int, params: bytes, at: int, word: int) -> Answer:
        """As uvm_call, while another thread changes the word at that place back and forth."""
        return self._answer("race", self.uvm, f"{number:x}", params.hex(), at, f"{word:x}")

    def child_call(self, number: int, params: bytes) -> Answer:
        """As uvm_call, by a child of the process."""
        return self._answer("child", self.uvm, f"{number:x}", params.hex())

    def open_uvm(self) -> int:
        """A file of nvidia-uvm that can be mapped; here no driver looks at what initialised it."""
        return int(self.tell("file", self._world.uvm_node))

    def map(self, fd: int, at: int, size: int, flags: int = MAP_FIXED, how: str = "map") -> int:
        """0 or a negative errno. how: "map", as tenant_maps.c has it."""
        return int(self.tell(how, fd, f"{at:x}", f"{size:x}", f"{flags:x}"))

    def unmap(self, at: int, size: int) -> None:
        assert self.tell("unmap", f"{at:x}", f"{size:x}") == "0"

    def kill(self) -> None:
        if self.listener >= 0:
            os.close(self.listener)
        self.listener = -1
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


class World:
    """A card, the engine on it as NVIDIA's driver, and tenants, each in a process of its own."""

    def __init__(
        self,
        folder: Path,
        card: CardProcess,
        stack: ExitStack,
        instances: Sequence[tuple[int, int]],
        seen: bool,
        version: str,
    ) -> None:
        self.card = card
        self.lib = ctypes.CDLL(library())
        self._stack = stack
        self._version = version
        self._tenants = 0
        nodes = self._nodes = folder / "nodes"
        nodes.mkdir()
        for name in ("nvidiactl", "nvidia0"):
            (nodes / name).touch()
        assert self.lib.on_card_begin(os.fsencode(card.card_socket), os.fsencode(nodes)) == 0
        stack.callback(self.lib.on_card_end)
        [found] = cards.cards(card.admin_socket)
        # As large as what is mapped of it; nothing is ever written there.
        self.uvm_node = nodes / "nvidia-uvm"
        with self.uvm_node.open("wb") as uvm:
            uvm.truncate(1 << 43)
        self.lib.on_card_uvm_node(ctypes.c_uint64(self.uvm_node.stat().st_ino))
        (nodes / "mig-minors").write_text("config 1\nmonitor 2\ngpu0/gi1/access 12\n")
        (nodes / "nvidia-caps").mkdir()
        (nodes / "nvidia-caps" / "nvidia-cap2").touch()
        if seen:
            self.registers = Registers(nodes, found.pci, instances)
        self._cards = [
            Card(
                index=index,
                minor=0,
                gpu_id=found.gpu_id,
                device_instance=99,  # the driver's own number is asked for
                gpu_instance=gpu,
                compute_instance=compute,
                memory_bytes=found.memory_mib << 20,
                context_bytes=found.context_bytes,
                copy_context_bytes=found.copy_context_bytes,
            )
            for index, (gpu, compute) in enumerate(instances or [(NO_INSTANCE, NO_INSTANCE)])
        ]
        self.journal = folder / "journal"
        self.journal.mkdir()
        self._engines = stack.enter_context(ExitStack())
        self._mates: list[Tenant] = []
        self._all: list[tuple[Tenant, int, bool, int]] = []
        self.begin()

    def begin(self) -> None:
        opened = open_engine(library(), "nvidia", "", self._version, str(self.journal))
        self.engine: Engine = self._engines.enter_context(opened)
        for card in self._cards:
            self.engine.add_card(card)
        self.engine.configure(SchedConfig(poll_fast_ns=400_000, poll_slow_ns=1_000_000, quiet_ns=5_000_000))
        for card in self._cards:
            self.engine.card_policy(card.index, vocabulary.NATIVE_BURST_SHARE)

    def restart(
        self, meanwhile: Callable[[], object] = lambda: None, *, without: Tenant | None = None
    ) -> None:
        """The engine ends, and the next one serves the same tenants. without: one that it cannot take
        over."""
        self.ends()
        meanwhile()
        self.goes_on(without)

    def ends(self) -> None:
        self._engines.close()

    def goes_on(self, without: Tenant | None = None) -> None:
        """The next engine does. without: as in restart()."""
        self.lib.on_card_again()
        self.begin()
        for tenant, cap_mib, offline, card in self._all:
            if tenant is without:
                with suppress(ProcessLookupError):  # what the engine says to a channel without its group
                    self.engine.add_tenant(tenant.id)
                    raise AssertionError("it was taken over")
                continue
            assert self._tell(tenant.id, cap_mib, offline, card)
            for process in (tenant, *(mate for mate in self._mates if mate.id == tenant.id)):
                if process.listener >= 0:
                    process.serve()
        self.engine.recovered()

    def _tell(self, tenant: int, cap_mib: int, offline: bool, card: int) -> bool:
        known = self.engine.add_tenant(tenant)
        self.engine.grant(tenant, card, cap_mib << 20)
        for kind in (NodeKind.CTL, NodeKind.CARD, NodeKind.UVM):
            self.engine.add_node(tenant, 0, 1 + kind, kind, 0)
        self.engine.schedule(tenant, TenantClass.OFFLINE if offline else TenantClass.ONLINE, 100)
        return known

    def tenant(self, *, cap_mib: int = 2048, offline: bool = False, card: int = 0) -> Tenant:
        self._tenants += 1
        self._tell(self._tenants, cap_mib, offline, card)
        made = Tenant(self, self._tenants, self._tenants)
        self._all.append((made, cap_mib, offline, card))
        self._stack.callback(made.kill)
        return made

    def tenant_client(
        self, *, cap_mib: int = 2048, offline: bool = False, card: int = 0
    ) -> tuple[Tenant, int]:
        """With a root client of its own."""
        made = self.tenant(cap_mib=cap_mib, offline=offline, card=card)
        return made, made.client()

    def mate(self, tenant: Tenant) -> Tenant:
        """Another process of the same container, with a listener of its own."""
        self._mates.append(made := Tenant(self, tenant.id, 1000 + len(self._mates)))
        self._stack.callback(made.kill)
        return made

    def range(self, base: int, size: int) -> None:
        """CREATE_EXTERNAL_RANGE has been made, by whomever: a file's addresses are all files'."""
        self.lib.on_card_range(ctypes.c_uint64(base), ctypes.c_uint64(size))

    def managed_poller(self, gap_s: float) -> None:
        """How long it is from one poll of managed memory to the next."""
        self.lib.on_card_managed_looks(self.engine._handle, ctypes.c_uint64(int(gap_s * 1e9)))

    def closes_uvm(self, tenant: Tenant, fd: int | None = None) -> None:
        """The last descriptor that the tenant has of that file of nvidia-uvm, with what is registered
        there."""
        fd = tenant.uvm if fd is None else fd
        tenant.tell("close", fd)
        self.lets_go(tenant, fd)

    def lets_go(self, tenant: Tenant, fd: int) -> None:
        """Of all that is registered on that file of nvidia-uvm."""
        self.lib.on_card_closed(tenant.pid, fd)

    def open_files(self, number: int) -> None:
        """So many of nvidia-uvm are open on the machine, by the references to its module."""
        (self._nodes / "uvm-references").write_text(f"{2 * number}\n")

    @property
    def retained(self) -> int:
        """How many channels are registered."""
        return int(self.lib.on_card_retained())

    @property
    def unregistered(self) -> int:
        """How many UNREGISTER_CHANNEL found one."""
        return ctypes.c_uint32.in_dll(self.lib, "on_card_unregistered").value

    def uvm_fails(self, error: int) -> None:
        """UNREGISTER_CHANNEL does, with this errno; 0: no longer."""
        ctypes.c_int.in_dll(self.lib, "on_card_uvm_error").value = error

    def context(self, size: int) -> None:
        """What tenants are charged for a group, in the next engine, which begins here."""
        for card in self._cards:
            card.context_bytes = size
        self.restart()

    def refuses(self, escape: int = 0, control: int = 0) -> None:
        """The driver answers these with an error from here on."""
        ctypes.c_int.in_dll(self.lib, "on_card_refuse").value = escape
        ctypes.c_uint32.in_dll(self.lib, "on_card_refuse_control").value = control

    def unschedulable(self, handle: int) -> None:
        """The driver puts that group on no runlist and takes it off none; 0: it does."""
        ctypes.c_uint32.in_dll(self.lib, "on_card_unschedulable").value = handle

    def looks(self, gap_s: float) -> None:
        """How long it is from one look through all processes to the next; the first is due."""
        self.lib.on_card_looks(self.engine._handle, ctypes.c_uint64(int(gap_s * 1e9)))

    def lost(self) -> tuple[int, int]:
        """How many of nvidia-uvm's files are looked for, and how many have been let go and are not closed."""
        missed, unlocated = ctypes.c_uint32(), ctypes.c_uint32()
        self.lib.on_card_lost(self.engine._handle, ctypes.byref(missed), ctypes.byref(unlocated))
        return missed.value, unlocated.value

    def slow_status(self) -> None:
        """Before there are tenants: it takes a millisecond to read what engines execute."""
        self.lib.on_card_slow_status(self.engine._handle)

    def patience(self, ns: int) -> None:
        """For how long it may be that a tenant cannot be suspended."""
        self.lib.on_card_patience(self.engine._handle, ctypes.c_uint64(ns))

    def suspended_by(self) -> tuple[int, int]:
        """How many calls took groups off their runlist, and channels off."""
        names = ("on_card_unscheduled", "on_card_disabled")
        unscheduled, disabled = (ctypes.c_uint32.in_dll(self.lib, name).value for name in names)
        return unscheduled, disabled

    def closes(self, descriptor: int) -> None:
        """What the driver frees from here on has that descriptor of the process that made it."""
        ctypes.c_int.in_dll(self.lib, "on_card_closes").value = descriptor

    @property
    def monitors(self) -> int:
        """How many sessions that are told of every MIG instance there are."""
        return ctypes.c_uint32.in_dll(self.lib, "on_card_monitors").value

    @property
    def virtual_flags(self) -> int:
        """Of the virtual memory that was made last, as the driver was asked."""
        return ctypes.c_uint32.in_dll(self.lib, "on_card_virtual_flags").value

    @property
    def mapped(self) -> int:
        """The handle of the memory that nvidia-uvm has mapped last."""
        return ctypes.c_uint32.in_dll(self.lib, "on_card_mapped").value

    @property
    def shared(self) -> int:
        """How many objects any caller may duplicate."""
        return int(self.lib.on_card_shared())

    def used_mib(self, tenant: Tenant, card: int = 0) -> float:
        used: int = self.engine.usage(tenant.id, card).used_bytes
        return used / MIB

    def tables_mib(self, tenant: Tenant) -> float:
        """What is charged for the page tables of external mappings: part of used_mib()."""
        (find := self.lib.on_card_tables).restype = ctypes.c_uint64
        return int(find(self.engine._handle, ctypes.c_uint64(tenant.id), ctypes.c_uint32(0))) / MIB

    def memory_mib(self, tenant: Tenant) -> float:
        """What is charged for all else."""
        return self.used_mib(tenant) - self.tables_mib(tenant)

    def groups(self) -> dict[int, bool]:
        """Whether the card lets each group of the graphics engine run, by its handle."""
        engines = cards.account(self.card.admin_socket).cards[0].engines
        return {one.group: one.open for e in engines if e.engine == "graphics" for one in e.groups}


@contextmanager
def world(
    folder: Path,
    instances: Sequence[tuple[int, int]] = (),
    *,
    seen: bool = False,
    version: str = VERSION,
    disables: bool = True,
) -> Iterator[World]:
    """instances: of MIG, (GPU instance, compute instance), each a card of its own; none: a card as a whole.

    seen: the arbiter has the capabilities of instances, and reads what their engines execute. disables: the
    driver has DISABLE_CHANNELS; only one that has not stops what is taken off its runlist.
    """
    options = ["--driver-version", version, "--disable-channels", str(int(disables))]
    with running(folder, "h200", rm_call_us=0, options=options) as card, ExitStack() as stack:
        yield World(folder, card, stack, instances, seen, version)
