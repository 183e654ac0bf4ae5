"""Sizes that RM judges and we do not: what each driver's programs pass is taken, others hear RM's own no."""

import functools
import struct
from pathlib import Path

import pytest

from tests.native.nvidia_mediated import Tenant, World, world
from tests.native.rm_params import GROUP, MEMORY, MIB, alloc_struct, group, memory
from tests.support import rm_numbers as nv
from tools.abi import interface, parity, store
from tools.abi.store import Store

OK, INVALID_ARGUMENT, INVALID_HANDLE = 0, nv.NV_ERR_INVALID_ARGUMENT, nv.NV_ERR_INVALID_OBJECT_HANDLE
NOT_SUPPORTED = nv.NV_ERR_NOT_SUPPORTED
PROBED_IDS = nv.NV0000_CTRL_CMD_GPU_GET_PROBED_IDS
BUILD_VERSION = nv.NV0000_CTRL_CMD_SYSTEM_GET_BUILD_VERSION
ACTIVE_IDS = nv.NV0000_CTRL_CMD_GPU_GET_ACTIVE_DEVICE_IDS
FB_INFO, NAME = nv.NV2080_CTRL_CMD_FB_GET_INFO_V2, nv.NV2080_CTRL_CMD_GPU_GET_NAME_STRING
PREEMPT = nv.NVA06C_CTRL_CMD_PREEMPT
CONTROL_STATUS, ALLOC_STATUS = 0x1C, 0x28
GROUP_HANDLE, ALLOC = 0x900, nv.NV_ESC_RM_ALLOC
NO_ID = 0xFFFFFFFF


def says(tenant: Tenant, client: int, thing: int, command: int, params: bytes) -> int:
    answer = tenant.control(client, thing, command, params)
    assert (answer.result, answer.through) == (0, False)
    return answer.u32(CONTROL_STATUS)


@functools.cache
def facts() -> Store:
    return store.load()


def size(symbol: str, version: str) -> int:
    """sizeof() of the control's parameters, by NVIDIA's headers of that driver; 0: it has no such control."""
    value = facts().value("control", (symbol,), version)
    return int(value[2]) if value else 0


@pytest.mark.parametrize(
    "version", [release.version for release in parity.served(interface.read(), facts())]
)
def test_first_controls_of_a_start_are_answered_on_each_driver(tmp_path: Path, version: str) -> None:
    probed, active, fb, name = (
        size(symbol, version)
        for symbol in (
            "NV0000_CTRL_CMD_GPU_GET_PROBED_IDS",
            "NV0000_CTRL_CMD_GPU_GET_ACTIVE_DEVICE_IDS",
            "NV2080_CTRL_CMD_FB_GET_INFO_V2",
            "NV2080_CTRL_CMD_GPU_GET_NAME_STRING",
        )
    )
    assert min(probed, fb, name) > 0, "the facts have them"
    with world(tmp_path, version=version) as here:
        tenant, client = here.tenant_client(cap_mib=64)
        ids = tenant.control(client, client, PROBED_IDS, b"\x55" * probed)
        assert ids.u32(CONTROL_STATUS) == OK
        words = struct.unpack(f"{probed // 4}I", ids.params)
        assert words[0] not in (0, NO_ID)
        assert words[1:] == (*[NO_ID] * 63, *[0] * (probed // 4 - 64))
        assert says(tenant, client, client, ACTIVE_IDS, bytes(active)) == (OK if active else NOT_SUPPORTED)
        info = tenant.control(client, 0xD1, FB_INFO, struct.pack("III", 1, 8, 0).ljust(fb, b"\0"))
        assert info.u32(CONTROL_STATUS) == OK
        assert struct.unpack_from("3I", info.params) == (1, 8, 64 << 10)
        assert says(tenant, client, 0xD1, FB_INFO, bytes(fb + 8)) == INVALID_ARGUMENT
        assert says(tenant, client, 0xD1, NAME, bytes(name)) == OK
        assert says(tenant, client, 0xD1, NAME, bytes(name + 4)) == INVALID_ARGUMENT


def test_parameters_with_less_than_is_looked_at_are_refused_as_rm_does(here: World) -> None:
    tenant, client = here.tenant_client()
    assert says(tenant, client, client, PROBED_IDS, bytes(252)) == INVALID_ARGUMENT
    assert says(tenant, client, 0xD1, FB_INFO, bytes(2)) == INVALID_ARGUMENT
    assert says(tenant, client, client, BUILD_VERSION, bytes(16)) == INVALID_ARGUMENT


def test_controls_numbered_nothing_do_nothing_on_anything(here: World) -> None:
    tenant, client = here.tenant_client()
    for thing, command in ((client, 0), (0xD1, 0x20800000), (0xBAD, 0x800000)):
        assert says(tenant, client, thing, command, b"") == OK


@pytest.mark.parametrize("said", [0, 4, 120, 0xFFFF_FFFF])
def test_params_size_of_an_allocation_is_ignored(here: World, said: int) -> None:
    tenant, client = here.tenant_client(cap_mib=64)
    outer = alloc_struct(client, 0xD0, 0x100, MEMORY, said)
    answer = tenant.ioctl(tenant.ctl, ALLOC, outer, memory(48 * MIB), at=0x10)
    assert (answer.result, answer.u32(ALLOC_STATUS)) == (0, OK)
    assert here.used_mib(tenant) == 48


def test_preempting_a_group_of_its_own_is_answered_and_does_nothing(here: World) -> None:
    """As libcuda does once when it ends a context."""
    tenant, other = here.tenant(), here.tenant()
    client, its = tenant.client(), other.client()
    made = tenant.alloc(client, 0xD0, GROUP_HANDLE, GROUP, group())
    assert made.u32(ALLOC_STATUS) == OK
    assert says(tenant, client, GROUP_HANDLE, PREEMPT, bytes(8)) == OK
    assert here.groups() == {GROUP_HANDLE: False}
    assert says(tenant, client, 0xD1, PREEMPT, bytes(8)) == INVALID_HANDLE
    assert says(other, its, GROUP_HANDLE, PREEMPT, bytes(8)) == INVALID_HANDLE


@pytest.mark.parametrize(
    ("command", "size"),
    # As NVML has them on 610: of temperatures, performance, power.
    [(0x20808546, 24), (0x2080A0A4, 67396), (0x2080A612, 54352)],
)
def test_firmware_controls_of_nvml_pass_at_their_size(here: World, command: int, size: int) -> None:
    tenant, client = here.tenant_client()
    answer = tenant.control(client, 0xD1, command, bytes(size))
    assert (answer.result, answer.u32(CONTROL_STATUS), answer.params) == (0, OK, b"\x5a" * size)
    # The administrator's, others without a row, and what is longer than anything known.
    assert says(tenant, client, 0xD1, command | 0x4000, bytes(24)) == NOT_SUPPORTED
    assert says(tenant, client, 0xD1, 0x208084AA, bytes(24)) == NOT_SUPPORTED
    assert says(tenant, client, 0xD1, command, bytes(69633)) == INVALID_ARGUMENT
