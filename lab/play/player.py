"""Plays the cases of a script on a driver, one line of result for each call.

A result is the errno that the call failed with, or RM's status, then the fields that the script asks for.
"""

import ctypes
import errno
import os
import signal
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress

from lab.play.driver import Driver
from lab.play.kernel import File
from lab.play.memory import FAILED, Memory, libc
from lab.play.script import Case, Field, Step
from tests.support import rm_numbers as rm

PID_INFO_BYTES, GID_BYTES, GID_BINARY = 14408, 268, 2
READ_WRITE, SHARED, FIXED = 3, 1, 0x10
LISTS_ALIGNMENT = 16
DONE = ("0", "0x0")
PACK = {1: "<B", 2: "<H", 4: "<I", 8: "<Q"}


class Client:
    """A root client, and the file that it was made through."""

    def __init__(self, file: File, handle: int) -> None:
        self.file, self.handle = file, handle


def rm_cmd(nr: int, size: int) -> int:
    return 3 << 30 | size << 16 | ord("F") << 8 | nr


class Played(Exception):
    """What a call came to, where it is no status."""


class Player:
    def __init__(self, driver: Driver, fb_info_bytes: int) -> None:
        self.driver, self.fb_info_bytes = driver, fb_info_bytes
        self.gpu_id = 0
        self.uuid = bytes(16)
        self.forget()

    def forget(self) -> None:
        self.files: dict[str, File] = {}
        self.opened: list[File] = []
        self.clients: dict[str, Client] = {}
        self.names: dict[str, int] = {}
        self.children: dict[str, tuple[int, int, int]] = {}
        self.free_kib: dict[tuple[int, int], int] = {}
        self.mapped: dict[str, tuple[int, int]] = {}

    # What the scripts name

    def know(self) -> File:
        """The card's number and UUID. The file stays open, so that the card stays attached."""
        node = self.driver.open("gpu")
        ctl = self.driver.open("ctl")
        cards = bytearray(72 * 32)
        self.driver.ioctl(ctl, rm_cmd(rm.NV_ESC_CARD_INFO, len(cards)), cards, None, 0, None)
        (self.gpu_id,) = struct.unpack_from("<I", cards, 16)
        client = self.root(ctl, 0)
        for parent, handle, class_id, size in (
            (client.handle, 0xD0000080, rm.NV01_DEVICE_0, 56),
            (0xD0000080, 0xD0002080, rm.NV20_SUBDEVICE_0, 4),
        ):
            self.rm_alloc(client, parent, handle, class_id, Memory(size))
        gid = Memory(GID_BYTES)
        struct.pack_into("<I", gid.bytes, 4, GID_BINARY)
        assert self.rm_control(client, 0xD0002080, rm.NV2080_CTRL_CMD_GPU_GET_GID_INFO, gid) == 0
        self.uuid = bytes(gid.bytes[12:28])
        self.driver.close(ctl)
        return node

    def value(self, word: str) -> int:
        for known in (self.names, {name: one.handle for name, one in self.clients.items()}):
            if word in known:
                return known[word]
        if word.startswith("fd:"):
            return self.files[word[3:]].fd if word[3:] in self.files else int(word[3:])
        if "+" in word:
            return sum(self.value(part) for part in word.split("+"))
        special = {"gpu_id": self.gpu_id, "pid": os.getpid()}
        return special[word] if word in special else int(word, 0)

    def fill(self, out: bytearray, fields: tuple[Field, ...]) -> tuple[File | None, list[Memory]]:
        """The file that a field names, and the memory that fields point to."""
        named, behind = None, []
        for field in fields:
            if field.value == "uuid":
                out[field.at : field.at + 16] = self.uuid
                continue
            if field.value.startswith("fd:"):
                named = self.files.get(field.value[3:])
            if field.value.startswith("list:"):
                behind.append(Memory(int(field.value[5:], 0)))
                value = behind[-1].address
            else:
                value = self.value(field.value)
            struct.pack_into(PACK[field.bytes], out, field.at, value & (1 << 8 * field.bytes) - 1)
        return named, behind

    def shown(self, outer: bytearray, fields: tuple[Field, ...]) -> str:
        found = []
        for field in fields:
            if field.at + field.bytes > len(outer):
                found.append("short")
                continue
            (value,) = struct.unpack_from(PACK[field.bytes], outer, field.at)
            if field.masked:
                found.append("some" if value else "0")
            else:
                found.append(f"{value:#x}")
        return " ".join(found)

    # RM's calls

    def root(self, file: File, handle: int, class_id: int = rm.NV01_ROOT_CLIENT) -> Client:
        outer = bytearray(struct.pack("<IIIIQQIIII", 0, 0, handle, class_id, 0, 0, 0, 0, 0, 0))
        self.driver.ioctl(file, rm_cmd(rm.NV_ESC_RM_ALLOC, 48), outer, None, 0, None)
        (made,), (status,) = struct.unpack_from("<I", outer, 8), struct.unpack_from("<I", outer, 40)
        if status:
            raise Played(f"{status:#x}")
        return Client(file, made)

    def rm_alloc(
        self, client: Client, parent: int, handle: int, class_id: int, params: Memory
    ) -> tuple[int, int]:
        """(status, handle)"""
        head = (client.handle, parent, handle, class_id, params.address, 0, len(params.bytes), 0, 0, 0)
        outer = bytearray(struct.pack("<IIIIQQIIII", *head))
        self.driver.ioctl(
            client.file, rm_cmd(rm.NV_ESC_RM_ALLOC, 48), outer, params, len(params.bytes), None
        )
        return struct.unpack_from("<I", outer, 40)[0], struct.unpack_from("<I", outer, 8)[0]

    def rm_control(self, client: Client, obj: int, cmd: int, params: Memory) -> int:
        outer = bytearray(
            struct.pack("<IIIIQII", client.handle, obj, cmd, 0, params.address, len(params.bytes), 0)
        )
        self.driver.ioctl(
            client.file, rm_cmd(rm.NV_ESC_RM_CONTROL, 32), outer, params, len(params.bytes), None
        )
        return int(struct.unpack_from("<I", outer, 28)[0])

    def client(self, word: str) -> Client:
        """CLIENT, or CLIENT:FILE for a call on it by another file."""
        name, _, file = word.partition(":")
        if name in self.clients:
            of = self.clients[name]
            return Client(self.files[file] if file else of.file, of.handle)
        return Client(self.files[file], self.value(name))

    def params(
        self, words: list[str], fields: tuple[Field, ...]
    ) -> tuple[Memory | None, int, int, File | None]:
        """Of `SIZE`, `SIZE null` or `SIZE said=N`: (memory, size that is told, list bytes, named file)."""
        if not words:
            return None, 0, 0, None
        size = int(words[0], 0)
        told = next((int(word[5:], 0) for word in words if word.startswith("said=")), size)
        if "null" in words:
            return None, told, 0, None
        inside = bytearray(size)
        named, behind = self.fill(inside, fields)
        around = -(-size // LISTS_ALIGNMENT) * LISTS_ALIGNMENT if behind else size
        memory = Memory(around + sum(-(-len(m.bytes) // LISTS_ALIGNMENT) * LISTS_ALIGNMENT for m in behind))
        memory.bytes[:size] = inside
        at = around
        pointers = [field for field in fields if field.value.startswith("list:")]
        for field, one in zip(pointers, behind, strict=True):
            struct.pack_into("<Q", memory.bytes, field.at, memory.address + at)
            at += -(-len(one.bytes) // LISTS_ALIGNMENT) * LISTS_ALIGNMENT
        return memory, told, len(memory.bytes) - size, named

    # Verbs

    def do_open(self, step: Step) -> str:
        name, node = step.words
        self.files[name] = self.driver.open(node)
        self.opened.append(self.files[name])
        return "0"

    def do_close(self, step: Step) -> str:
        file = self.files.pop(step.words[0])
        if file in self.opened:
            self.opened.remove(file)
        self.driver.close(file)
        return "0"

    def do_poll(self, step: Step) -> str:
        self.driver.poll(self.files[step.words[0]])
        return "0"

    def do_root(self, step: Step) -> str:
        """root FILE [HANDLE [CLASS]]"""
        handle, class_id = (
            *map(self.value, step.words[1:]),
            *(0, rm.NV01_ROOT_CLIENT)[len(step.words) - 1 :],
        )
        self.clients[step.name] = self.root(self.files[step.words[0]], handle, class_id)
        return "0x0"

    def do_alloc(self, step: Step, short: bool = False) -> str:
        """alloc CLIENT PARENT HANDLE CLASS [SIZE ...]"""
        client = self.client(step.words[0])
        parent, handle, class_id = map(self.value, step.words[1:4])
        params, told, _, named = self.params(list(step.words[4:]), step.fields)
        address = params.address if params else 0
        if short:
            outer = bytearray(
                struct.pack("<IIIIQII", client.handle, parent, handle, class_id, address, told, 0)
            )
        else:
            outer = bytearray(
                struct.pack(
                    "<IIIIQQIIII", client.handle, parent, handle, class_id, address, 0, told, 0, 0, 0
                )
            )
        length = len(params.bytes) if params else 0
        self.driver.ioctl(client.file, rm_cmd(rm.NV_ESC_RM_ALLOC, len(outer)), outer, params, length, named)
        (made,), (status,) = (
            struct.unpack_from("<I", outer, 8),
            struct.unpack_from("<I", outer, 28 if short else 40),
        )
        if step.name and not status:
            self.names[step.name] = made
        return f"{status:#x} {self.shown(params.bytes if params else bytearray(), step.shown)}"

    def do_alloc21(self, step: Step) -> str:
        return self.do_alloc(step, short=True)

    def do_free(self, step: Step) -> str:
        client = self.client(step.words[0])
        outer = bytearray(struct.pack("<IIII", client.handle, *map(self.value, step.words[1:3]), 0))
        self.driver.ioctl(client.file, rm_cmd(rm.NV_ESC_RM_FREE, 16), outer, None, 0, None)
        return f"{struct.unpack_from('<I', outer, 12)[0]:#x}"

    def do_control(self, step: Step) -> str:
        """control CLIENT OBJECT CMD [SIZE ...]"""
        client = self.client(step.words[0])
        obj, cmd = map(self.value, step.words[1:3])
        params, told, lists, named = self.params(list(step.words[3:]), step.fields)
        outer = bytearray(
            struct.pack("<IIIIQII", client.handle, obj, cmd, 0, params.address if params else 0, told, 0)
        )
        length = (min(len(params.bytes), told) if not lists else len(params.bytes)) if params else 0
        self.driver.ioctl(client.file, rm_cmd(rm.NV_ESC_RM_CONTROL, 32), outer, params, length, named)
        status = struct.unpack_from("<I", outer, 28)[0]
        return f"{status:#x} {self.shown(params.bytes if params else bytearray(), step.shown)}"

    def do_dup(self, step: Step) -> str:
        """dup CLIENT PARENT HANDLE SOURCE_CLIENT SOURCE"""
        client = self.client(step.words[0])
        outer = bytearray(struct.pack("<7I", client.handle, *map(self.value, step.words[1:5]), 0, 0))
        self.driver.ioctl(client.file, rm_cmd(rm.NV_ESC_RM_DUP_OBJECT, 28), outer, None, 0, None)
        made, status = struct.unpack_from("<I", outer, 8)[0], struct.unpack_from("<I", outer, 24)[0]
        if step.name and not status:
            self.names[step.name] = made
        return f"{status:#x}"

    def do_share(self, step: Step) -> str:
        """share CLIENT OBJECT TYPE MASK ACTION [TARGET]"""
        client = self.client(step.words[0])
        obj, kind, mask, action, *target = map(self.value, step.words[1:])
        packed = struct.pack("<IIIIHBBI", client.handle, obj, *(target or [0]), mask, kind, action, 0, 0)
        outer = bytearray(packed)
        self.driver.ioctl(client.file, rm_cmd(rm.NV_ESC_RM_SHARE, 24), outer, None, 0, None)
        return f"{struct.unpack_from('<I', outer, 20)[0]:#x}"

    def do_map(self, step: Step) -> str:
        """map CLIENT DEVICE MEMORY OFFSET LENGTH FILE [FLAGS], then mmap() of what is got"""
        client = self.client(step.words[0])
        device, memory, offset, length = map(self.value, step.words[1:5])
        file = self.files[step.words[5]]
        flags = self.value(step.words[6]) if len(step.words) > 6 else 0
        head = (client.handle, device, memory, 0, offset, length, 0, 0, flags, file.fd, 0)
        outer = bytearray(struct.pack("<4I3QIIiI", *head))
        self.driver.ioctl(client.file, rm_cmd(rm.NV_ESC_RM_MAP_MEMORY, 56), outer, None, 0, file)
        linear, status = struct.unpack_from("<QI", outer, 32)
        if status:
            return f"{status:#x}"
        at = libc.mmap(None, length, READ_WRITE, SHARED, file.fd, self.driver.map_at(file, linear))
        if at == FAILED:
            return f"0x0 mmap {errno.errorcode[ctypes.get_errno()]}"
        self.mapped[step.name or step.words[5]] = (at, linear)
        self.names["at"] = at
        return "0x0 mmap 0"

    def do_unmap(self, step: Step) -> str:
        """unmap CLIENT DEVICE MEMORY MAPPING"""
        client = self.client(step.words[0])
        device, memory = map(self.value, step.words[1:3])
        linear = self.mapped[step.words[3]][1] if step.words[3] in self.mapped else self.value(step.words[3])
        outer = bytearray(struct.pack("<4IQII", client.handle, device, memory, 0, linear, 0, 0))
        self.driver.ioctl(client.file, rm_cmd(rm.NV_ESC_RM_UNMAP_MEMORY, 32), outer, None, 0, None)
        return f"{struct.unpack_from('<I', outer, 24)[0]:#x}"

    def do_ioctl(self, step: Step) -> str:
        """ioctl FILE NUMBER SIZE FIELDS: an escape as it is"""
        size = int(step.words[2], 0)
        outer = bytearray(size)
        named, _ = self.fill(outer, step.fields)
        self.driver.ioctl(
            self.files[step.words[0]], rm_cmd(self.value(step.words[1]), size), outer, None, 0, named
        )
        return f"0 {self.shown(outer, step.shown)}"

    def do_uvm(self, step: Step) -> str:
        """uvm FILE CMD SIZE STATUS_AT FIELDS"""
        cmd, size, status_at = map(self.value, step.words[1:4])
        outer = bytearray(size)
        named, _ = self.fill(outer, step.fields)
        self.driver.ioctl(self.files[step.words[0]], cmd, outer if size else None, None, 0, named)
        status = struct.unpack_from("<I", outer, status_at)[0] if size else 0
        return f"{status:#x} {self.shown(outer, step.shown)}"

    def do_range(self, step: Step) -> str:
        """range FILE BASE LENGTH: UVM_CREATE_EXTERNAL_RANGE"""
        outer = bytearray(struct.pack("<QQII", *map(self.value, step.words[1:]), 0, 0))
        self.driver.ioctl(self.files[step.words[0]], rm.UVM_CREATE_EXTERNAL_RANGE, outer, None, 0, None)
        return f"{struct.unpack_from('<I', outer, 16)[0]:#x}"

    def do_mmap(self, step: Step) -> str:
        """mmap FILE ADDRESS LENGTH OFFSET [PROTECTION [FLAGS]]"""
        at, length, offset, *how = map(self.value, step.words[1:])
        protection, flags = (*how, *(READ_WRITE, SHARED | FIXED)[len(how) :])
        got = libc.mmap(at, length, protection, flags, self.files[step.words[0]].fd, offset)
        return errno.errorcode[ctypes.get_errno()] if got == FAILED else "0"

    def do_munmap(self, step: Step) -> str:
        at, length = map(self.value, step.words)
        return errno.errorcode[ctypes.get_errno()] if libc.munmap(at, length) else "0"

    def do_heap(self, step: Step) -> str:
        """heap CLIENT SUBDEVICE: by how many KiB free memory has shrunk since this was asked last"""
        client = self.client(step.words[0])
        subdevice = self.value(step.words[1])
        info = Memory(self.fb_info_bytes)
        struct.pack_into("<III", info.bytes, 0, 1, rm.NV2080_CTRL_FB_INFO_INDEX_HEAP_FREE, 0)
        status = self.rm_control(client, subdevice, rm.NV2080_CTRL_CMD_FB_GET_INFO_V2, info)
        (free,) = struct.unpack_from("<I", info.bytes, 8)
        before = self.free_kib.get((0, 0), free)
        self.free_kib[0, 0] = free
        return f"{status:#x} {before - free} KiB"

    def do_account(self, step: Step) -> str:
        """account CLIENT SUBDEVICE [PROCESS]: what GET_PID_INFO says of a process, in KiB"""
        client = self.client(step.words[0])
        pid = self.children[step.words[2]][0] if len(step.words) > 2 else os.getpid()
        info = Memory(PID_INFO_BYTES)
        struct.pack_into("<III", info.bytes, 0, 1, 0, pid)
        status = self.rm_control(
            client, self.value(step.words[1]), rm.NV2080_CTRL_CMD_GPU_GET_PID_INFO, info
        )
        result = struct.unpack_from("<I", info.bytes, 16)[0]
        private, owned, duped = (kept // 1024 for kept in struct.unpack_from("<QQQ", info.bytes, 24))
        return f"{status:#x} {result:#x} private {private} owned {owned} duped {duped} KiB"

    def do_fill(self, step: Step) -> str:
        """fill CLIENT DEVICE FIRST_HANDLE CLASS: memory in ever smaller pieces until none of 64 KiB fits"""
        client = self.client(step.words[0])
        device, handle, class_id = map(self.value, step.words[1:4])
        status, size = 0, 1 << 30
        while size >= 1 << 16:
            params = Memory(128)
            struct.pack_into("<I", params.bytes, 0x18, 0x1800000)
            struct.pack_into("<QQ", params.bytes, 0x40, size, 0)
            struct.pack_into("<I", params.bytes, 0, 1)
            status, _ = self.rm_alloc(client, device, handle, class_id, params)
            if status:
                size >>= 1
            handle += 1
        return f"{status:#x}"

    def do_name(self, step: Step) -> str:
        self.names[step.words[0]] = self.value(step.words[1])
        return ""

    # Other processes

    def do_process(self, step: Step) -> str:
        """process NAME: has the files that are open by then; `in NAME CALL` is made by it"""
        to_child, from_parent = os.pipe()[::-1]
        to_parent, from_child = os.pipe()[::-1]
        pid = os.fork()
        if pid == 0:
            os.close(to_child)
            os.close(from_child)
            self.serve(from_parent, to_parent)
        os.close(from_parent)
        os.close(to_parent)
        self.children[step.words[0]] = (pid, to_child, from_child)
        return "0"

    def serve(self, asked: int, answers: int) -> None:
        """Never returns. A line is a step's text; what it was told of a file comes before it."""
        from lab.play.script import step

        self.driver.begin()
        self.children = {}
        with os.fdopen(asked) as lines, os.fdopen(answers, "w", buffering=1) as out:
            for line in lines:
                pid, fd, file, text = line.split(" ", 3)
                if int(pid):
                    self.names["other"] = int(pid)
                    self.other = File(int(fd), int(file))
                done = step(text)
                result = self.result(done)
                known = (
                    self.clients[done.name].handle
                    if done.name in self.clients
                    else self.names.get(done.name, 0)
                )
                out.write(f"{result}\t{known}\n")
        os._exit(0)

    def do_fetch(self, step: Step) -> str:
        """in P fetch NAME FILE: pidfd_getfd() of the first process's file"""
        self.files[step.words[0]] = self.driver.fetch(self.names["other"], self.other)
        return "0"

    def tell(self, step: Step) -> str:
        _, to_child, from_child = self.children[step.process]
        text = step.text.split(None, 2)[2]
        file = File(0)
        if step.verb == "fetch":
            file = self.files[step.words[1]]
        os.write(to_child, f"{os.getpid() if file.fd else 0} {file.fd} {file.id} {text}\n".encode())
        answer = bytearray()
        while not answer.endswith(b"\n"):
            byte = os.read(from_child, 4096)
            if not byte:
                return "died"
            answer += byte
        result, _, handle = answer.decode().rpartition("\t")
        if step.name:
            self.names[step.name] = int(handle)
        return result

    def do_uid(self, step: Step) -> str:
        """in NAME uid NUMBER: it is that user's from now on"""
        number = self.value(step.words[0])
        os.setgid(number)
        os.setuid(number)
        return "0"

    def do_end(self, step: Step) -> str:
        """end NAME: kill -9"""
        pid, *ends = self.children.pop(step.words[0])
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        for fd in ends:
            os.close(fd)
        self.driver.await_closes(pid)
        return "0"

    # Cases

    def result(self, step: Step) -> str:
        if step.process:
            return self.tell(step)
        do: Callable[[Step], str] = getattr(self, f"do_{step.verb}")
        try:
            return do(step).strip()
        except OSError as failed:
            return errno.errorcode[failed.errno or 0]
        except Played as other:
            return str(other)

    def case(self, case: Case) -> Iterator[tuple[str, str]]:
        """(call, result) of each line that has one."""
        try:
            for step in case.steps:
                try:
                    result = self.result(step)
                except (KeyError, ValueError) as missing:
                    result = f"not made: {missing.args[0]!r}"
                if result and not (step.quiet and result in DONE):
                    yield step.text, result
        finally:
            for name in list(self.children):
                self.do_end(Step("", "", "", "end", (name,), (), ()))
            for file in self.opened:
                with suppress(OSError):
                    self.driver.close(file)
            self.forget()
            self.driver.await_closes()
