"""Steps of a tenant that maps memory through nvidia-uvm."""

from tests.native.nvidia_mediated import Tenant
from tests.native.rm_params import (
    MIB,
    UVM_FREE,
    UVM_MAP_EXTERNAL,
    UVM_UNMAP_EXTERNAL,
)
from tests.native.uvm_params import GPU_ONE, free_range, unmap_external
from tests.support import rm_numbers as nv

OK, INVALID_ADDRESS, INVALID_ARGUMENT = 0, nv.NV_ERR_INVALID_ADDRESS, nv.NV_ERR_INVALID_ARGUMENT
INVALID_DEVICE, NO_MEMORY = nv.NV_ERR_INVALID_DEVICE, nv.NV_ERR_NO_MEMORY

MAP_MEMORY, MAP_STATUS, UNMAP_STATUS, FREE_STATUS = 9256, 9260, 32, 16

BASE, SIZE = 0x7F0000000000, 48 * MIB

HANDLE = 0x100


def map_range(tenant: Tenant, params: bytes, fd: int | None = None) -> None:
    assert tenant.uvm_initialize(fd).through
    answer = tenant.uvm_call(UVM_MAP_EXTERNAL, params, fd=fd)
    assert (answer.result, answer.through, answer.u32(MAP_STATUS)) == (0, False, OK)


def unmap_range(tenant: Tenant, base: int = BASE, size: int = SIZE, gpu: bytes = GPU_ONE) -> int:
    answer = tenant.uvm_call(UVM_UNMAP_EXTERNAL, unmap_external(base, size, gpu))
    assert (answer.result, answer.through) == (0, False)
    return answer.u32(UNMAP_STATUS)


def free_mapping(tenant: Tenant, base: int = BASE, size: int = SIZE) -> int:
    answer = tenant.uvm_call(UVM_FREE, free_range(base, size))
    assert (answer.result, answer.through) == (0, False)
    return answer.u32(FREE_STATUS)
