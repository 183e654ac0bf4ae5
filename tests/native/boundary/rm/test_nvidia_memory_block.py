"""SYS_PARAMS: the driver keeps the first size of a memory block that it is told, for the whole machine."""

import ctypes
import errno
import struct

from tests.native.nvidia_mediated import Tenant, World
from tests.recordings.script import memory_block_bytes
from tests.support.rm_numbers import NV_ESC_SYS_PARAMS

KERNELS, OTHER = 1 << 31, 128 << 20


def memory_block(here: World, size: int) -> None:
    """What the kernel says; 0: it has none."""
    here.lib.on_card_memory_block(here.engine._handle, ctypes.c_uint64(size))


def says(tenant: Tenant, size: int, *, by: int | None = None) -> int:
    """by: a descriptor; None: of the control file."""
    fd = tenant.ctl if by is None else by
    answer = tenant.ioctl(fd, NV_ESC_SYS_PARAMS, struct.pack("<Q", size))
    assert not answer.through
    return answer.result


def test_container_tells_the_driver_the_kernels_own_size_alone(here: World) -> None:
    memory_block(here, KERNELS)
    tenant, other = here.tenant(), here.tenant()
    assert [says(tenant, size) for size in (OTHER, 1, 2**64 - 1)] == [-errno.EBUSY] * 3
    assert [says(of, size) for of in (tenant, other) for size in (0, KERNELS, 0)] == [0] * 6
    assert says(other, OTHER) == -errno.EBUSY


def test_size_that_the_driver_was_told_outside_is_refused_by_the_driver(here: World) -> None:
    tenant = here.tenant()
    memory_block(here, KERNELS)
    assert says(tenant, KERNELS) == 0
    memory_block(here, OTHER)
    assert says(tenant, OTHER) == -errno.EBUSY
    assert says(tenant, KERNELS) == -errno.EBUSY


def test_block_size_unknown_to_the_kernel_is_not_passed_on(here: World) -> None:
    memory_block(here, 0)
    tenant = here.tenant()
    assert [says(tenant, size) for size in (OTHER, KERNELS, 0)] == [0] * 3
    memory_block(here, KERNELS)
    assert says(tenant, KERNELS) == 0


def test_memory_block_size_is_the_kernels(here: World) -> None:
    tenant, kernels = here.tenant(), memory_block_bytes()
    assert says(tenant, kernels) == 0
    assert says(tenant, kernels + 1) == (-errno.EBUSY if kernels else 0)


def test_card_file_takes_no_size_of_a_memory_block(here: World) -> None:
    """As NV_CTL_DEVICE_ONLY() has it, which comes before the size is looked at."""
    memory_block(here, KERNELS)
    tenant = here.tenant()
    assert [says(tenant, size, by=tenant.card) for size in (0, KERNELS, OTHER)] == [-errno.EINVAL] * 3
