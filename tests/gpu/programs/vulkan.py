"""Vulkan without a screen: the cards, and on NVIDIA's (else the first) a device, memory, and a buffer that
the card's queue fills. By the loader, and where that is missing or finds no card, straight from NVIDIA's
library.
"""

from __future__ import annotations

import ctypes
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    byref,
    c_char_p,
    c_float,
    c_int,
    c_uint32,
    c_uint64,
    c_void_p,
)
from typing import Any

from report import FOLDERS, Report

NVIDIA = 0x10DE
MIB = 1 << 20
FILL = 0x12345678
report = Report("vulkan")


class Application(Structure):
    _fields_ = (
        ("type", c_int), ("next", c_void_p), ("name", c_char_p), ("version", c_uint32), ("engine", c_char_p),
        ("engine_version", c_uint32), ("api", c_uint32),
    )  # fmt: skip


class InstanceInfo(Structure):
    _fields_ = (
        ("type", c_int), ("next", c_void_p), ("flags", c_uint32), ("application", POINTER(Application)),
        ("layers", c_uint32), ("layer_names", c_void_p), ("extensions", c_uint32), ("extension_names", c_void_p),
    )  # fmt: skip


class QueueInfo(Structure):
    _fields_ = (
        ("type", c_int), ("next", c_void_p), ("flags", c_uint32), ("family", c_uint32), ("count", c_uint32),
        ("priorities", POINTER(c_float)),
    )  # fmt: skip


class DeviceInfo(Structure):
    _fields_ = (
        ("type", c_int), ("next", c_void_p), ("flags", c_uint32), ("queues", c_uint32), ("queue", POINTER(QueueInfo)),
        ("layers", c_uint32), ("layer_names", c_void_p), ("extensions", c_uint32), ("extension_names", c_void_p),
        ("features", c_void_p),
    )  # fmt: skip


class Properties(Structure):
    """The beginning; the limits behind are 504 bytes and more."""

    _fields_ = (
        ("api", c_uint32), ("driver", c_uint32), ("vendor", c_uint32), ("device", c_uint32), ("kind", c_int),
        ("name", ctypes.c_char * 256), ("rest", ctypes.c_ubyte * 1024),
    )  # fmt: skip


class Family(Structure):
    _fields_ = (("flags", c_uint32), ("count", c_uint32), ("bits", c_uint32), ("extent", c_uint32 * 3))


class MemoryType(Structure):
    _fields_ = (("flags", c_uint32), ("heap", c_uint32))


class Heap(Structure):
    _fields_ = (("size", c_uint64), ("flags", c_uint32))


class MemoryProperties(Structure):
    _fields_ = (("types", c_uint32), ("type", MemoryType * 32), ("heaps", c_uint32), ("heap", Heap * 16))


class Allocate(Structure):
    _fields_ = (("type", c_int), ("next", c_void_p), ("size", c_uint64), ("memory_type", c_uint32))


class BufferInfo(Structure):
    _fields_ = (
        ("type", c_int), ("next", c_void_p), ("flags", c_uint32), ("size", c_uint64), ("usage", c_uint32),
        ("sharing", c_int), ("families", c_uint32), ("family", c_void_p),
    )  # fmt: skip


class Requirements(Structure):
    _fields_ = (("size", c_uint64), ("alignment", c_uint64), ("types", c_uint32))


class PoolInfo(Structure):
    _fields_ = (("type", c_int), ("next", c_void_p), ("flags", c_uint32), ("family", c_uint32))


class CommandsInfo(Structure):
    _fields_ = (
        ("type", c_int),
        ("next", c_void_p),
        ("pool", c_uint64),
        ("level", c_int),
        ("count", c_uint32),
    )


class Begin(Structure):
    _fields_ = (("type", c_int), ("next", c_void_p), ("flags", c_uint32), ("inheritance", c_void_p))


class Submit(Structure):
    _fields_ = (
        ("type", c_int), ("next", c_void_p), ("waits", c_uint32), ("wait", c_void_p), ("stages", c_void_p),
        ("commands", c_uint32), ("command", POINTER(c_void_p)), ("signals", c_uint32), ("signal", c_void_p),
    )  # fmt: skip


assert [ctypes.sizeof(each) for each in (MemoryProperties, Submit, BufferInfo)] == [520, 72, 56]


class Vulkan:
    """The functions, by whichever vkGetInstanceProcAddr there is."""

    def __init__(self, get: Any) -> None:
        self.get, self.instance = get, c_void_p()

    def function(self, name: str, result: Any, *arguments: Any) -> Any:
        address = self.get(self.instance, name.encode())
        if not address:
            raise RuntimeError(f"no {name}")
        return CFUNCTYPE(result, *arguments)(address)

    def call(self, name: str, *arguments: Any) -> None:
        """One that gives a VkResult; the arguments have C's types or are numbers of 32 bits."""
        code = self.function(name, c_int)
        given = [argument if argument is not None else c_void_p() for argument in arguments]
        result = code(*given)
        if result:
            raise RuntimeError(f"{name}: {result}")

    def void(self, name: str, *arguments: Any) -> None:
        self.function(name, None)(
            *[argument if argument is not None else c_void_p() for argument in arguments]
        )


def loaders() -> list[tuple[str, Any]]:
    found = []
    for name, symbol in (
        ("libvulkan.so.1", "vkGetInstanceProcAddr"),
        ("libGLX_nvidia.so.0", "vk_icdGetInstanceProcAddr"),
        ("libEGL_nvidia.so.0", "vk_icdGetInstanceProcAddr"),
    ):
        for folder in FOLDERS:
            try:
                lib = ctypes.CDLL(folder + name)
                get = getattr(lib, symbol)
            except (OSError, AttributeError) as error:
                if not folder:
                    report.facts[name] = str(error)
                continue
            if symbol.startswith("vk_icd"):
                version = c_uint32(5)
                try:
                    report.facts[f"{name} negotiated"] = [
                        lib.vk_icdNegotiateLoaderICDInterfaceVersion(byref(version)), version.value
                    ]  # fmt: skip
                except AttributeError as error:
                    report.facts[f"{name} negotiated"] = str(error)
            get.restype, get.argtypes = c_void_p, (c_void_p, c_char_p)
            found.append((name, get))
            break
    return found


def instance(get: Any) -> tuple[Vulkan, list[int]]:
    vulkan = Vulkan(get)
    application = Application(type=0, name=b"recorded", api=(1 << 22) | (1 << 12))
    info = InstanceInfo(type=1, application=ctypes.pointer(application))
    made = c_void_p()
    vulkan.call("vkCreateInstance", byref(info), None, byref(made))
    vulkan.instance = made
    number = c_uint32()
    vulkan.call("vkEnumeratePhysicalDevices", made, byref(number), None)
    cards = (c_void_p * max(number.value, 1))()
    if number.value:
        vulkan.call("vkEnumeratePhysicalDevices", made, byref(number), cards)
    return vulkan, [card for card in cards[: number.value] if card]


def properties(vulkan: Vulkan, card: int) -> Properties:
    found = Properties()
    vulkan.void("vkGetPhysicalDeviceProperties", c_void_p(card), byref(found))
    return found


def device(vulkan: Vulkan, card: int) -> dict[str, object]:
    number, physical = c_uint32(), c_void_p(card)
    vulkan.void("vkGetPhysicalDeviceQueueFamilyProperties", physical, byref(number), None)
    families = (Family * number.value)()
    vulkan.void("vkGetPhysicalDeviceQueueFamilyProperties", physical, byref(number), families)
    family = next(place for place, each in enumerate(families) if each.flags & 3)
    memory_of = MemoryProperties()
    vulkan.void("vkGetPhysicalDeviceMemoryProperties", physical, byref(memory_of))
    priority = c_float(1.0)
    queue_info = QueueInfo(type=2, family=family, count=1, priorities=ctypes.pointer(priority))
    info, made = DeviceInfo(type=3, queues=1, queue=ctypes.pointer(queue_info)), c_void_p()
    report.step = "vkCreateDevice"
    vulkan.call("vkCreateDevice", physical, byref(info), None, byref(made))
    found: dict[str, object] = {"families": [each.flags for each in families], "device": True}
    queue, memory, buffer, pool, commands = c_void_p(), c_uint64(), c_uint64(), c_uint64(), c_void_p()
    vulkan.void("vkGetDeviceQueue", made, c_uint32(family), c_uint32(0), byref(queue))
    local = next(place for place in range(memory_of.types) if memory_of.type[place].flags & 1)
    one = Allocate(type=5, size=MIB, memory_type=local)
    vulkan.call("vkAllocateMemory", made, byref(one), None, byref(memory))
    vulkan.void("vkFreeMemory", made, memory, None)
    found["memory"] = "1 MiB of the card's"
    report.step = "vkCmdFillBuffer"
    wanted, need = BufferInfo(type=12, size=MIB, usage=2), Requirements()
    vulkan.call("vkCreateBuffer", made, byref(wanted), None, byref(buffer))
    vulkan.void("vkGetBufferMemoryRequirements", made, buffer, byref(need))
    visible = next(
        place
        for place in range(memory_of.types)
        if memory_of.type[place].flags & 6 == 6 and need.types >> place & 1
    )
    one = Allocate(type=5, size=need.size, memory_type=visible)
    vulkan.call("vkAllocateMemory", made, byref(one), None, byref(memory))
    vulkan.call("vkBindBufferMemory", made, buffer, memory, c_uint64(0))
    pool_info = PoolInfo(type=39, family=family)
    vulkan.call("vkCreateCommandPool", made, byref(pool_info), None, byref(pool))
    commands_info = CommandsInfo(type=40, pool=pool.value, count=1)
    vulkan.call("vkAllocateCommandBuffers", made, byref(commands_info), byref(commands))
    begin = Begin(type=42, flags=1)
    vulkan.call("vkBeginCommandBuffer", commands, byref(begin))
    vulkan.void("vkCmdFillBuffer", commands, buffer, c_uint64(0), c_uint64(MIB), c_uint32(FILL))
    vulkan.call("vkEndCommandBuffer", commands)
    submit = Submit(type=4, commands=1, command=ctypes.pointer(commands))
    vulkan.call("vkQueueSubmit", queue, c_uint32(1), byref(submit), c_uint64(0))
    report.step = "vkQueueWaitIdle"
    vulkan.call("vkQueueWaitIdle", queue)
    place = c_void_p()
    vulkan.call("vkMapMemory", made, memory, c_uint64(0), c_uint64(MIB), c_uint32(0), byref(place))
    words = ctypes.cast(place, POINTER(c_uint32))
    found["filled"] = words[0] == FILL and words[MIB // 4 - 1] == FILL
    vulkan.void("vkUnmapMemory", made, memory)
    vulkan.void("vkDestroyCommandPool", made, pool, None)
    vulkan.void("vkDestroyBuffer", made, buffer, None)
    vulkan.void("vkFreeMemory", made, memory, None)
    vulkan.void("vkDestroyDevice", made, None)
    if not found["filled"]:
        raise RuntimeError(f"not filled: {found}")
    return found


def works(name: str, get: Any) -> bool:
    """Whether it finds a card of NVIDIA's; that or another one is used."""
    pair = report.check(f"instance by {name}", lambda: instance(get), needed=False)
    if not isinstance(pair, tuple):
        return False
    vulkan, cards = pair
    described = [(properties(vulkan, card), card) for card in cards]
    report.facts[f"instance by {name}"] = [f"{each.name.decode()} {each.vendor:#x}" for each, _ in described]
    ours = [card for each, card in described if each.vendor == NVIDIA]
    used = ours or [card for _, card in described]
    if used:
        report.check(f"device by {name}", lambda: device(vulkan, used[0]), needed=bool(ours))
    report.check(f"destroyed by {name}", lambda: vulkan.void("vkDestroyInstance", vulkan.instance, None))
    return bool(ours)


if not any(works(name, get) for name, get in loaders()):
    report.fail("no card of NVIDIA's")
report.finish()
