"""The simulated nvidia-uvm's parameters, by a driver's version, against how large that driver has them."""

import ctypes

import pytest

from tests.abi.probe import compiled
from tools.abi import interface, parity, store

PROBE = """
#include "sim/abi/uvm_sizes.h"
int size_of(const char *version, uint32_t cmd, struct uvm_size *out)
{
    struct rm_table t;

    if (rm_table_pick(version, &t))
        return -1;
    *out = uvm_size_of(&t, cmd);
    return 0;
}
"""


class Size(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint32), ("status_at", ctypes.c_uint32)]


@pytest.fixture(scope="module")
def probe(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return compiled(PROBE, tmp_path_factory.mktemp("uvm_sizes"))


def test_card_has_every_uvm_struct_as_large_as_the_driver(probe: ctypes.CDLL) -> None:
    releases = parity.served(interface.read(), store.load())
    wrong, compared = [], 0
    for release in releases:
        for (symbol,), (number, params, size) in release.facts["uvm"].items():
            ours = Size()
            assert probe.size_of(release.version.encode(), int(number, 16), ctypes.byref(ours)) == 0
            if not ours.bytes:
                continue
            status = release.facts["field"].get((params, "rmStatus"))
            theirs = (int(size), int(status[0], 16) if status else ours.status_at)
            compared += status is not None
            if (ours.bytes, ours.status_at) != theirs:
                wrong.append(f"{symbol} in {release.version}: {(ours.bytes, ours.status_at)}, not {theirs}")
    assert not wrong
    assert compared > 20 * len(releases)
