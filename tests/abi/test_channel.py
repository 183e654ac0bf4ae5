"""A channel's parameters, read and written by a driver's version, against where that driver has them."""

import ctypes

import pytest

from tests.abi.probe import compiled
from tools.abi import interface, parity, store

PARAMS = "NV_CHANNEL_ALLOC_PARAMS"
# Of ours: NVIDIA's.
FIELDS = {
    "flags": "flags",
    "userd_memory": "hUserdMemory",
    "userd_offset": "userdOffset",
    "engine_type": "engineType",
}
PROBE = """
#include "native_sched/nvidia/rm/channel.h"
int read_params(const char *version, const void *params, struct rm_channel *out)
{
    struct rm_table t;

    if (rm_table_pick(version, &t))
        return -1;
    rm_channel_read(&t, params, out);
    return (int)rm_bytes(&t, RM_BYTES_NV_CHANNEL_ALLOC_PARAMS);
}
int write_params(const char *version, const struct rm_channel *channel, void *params)
{
    struct rm_table t;

    return rm_table_pick(version, &t) ? -1 : (int)rm_channel_write(&t, channel, params);
}
size_t max(void) { return RM_CHANNEL_MAX; }
"""


class Channel(ctypes.Structure):
    _fields_ = [
        ("error_object", ctypes.c_uint32),
        ("pad0", ctypes.c_uint32),
        ("gpfifo_offset", ctypes.c_uint64),
        ("gpfifo_entries", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("context_share", ctypes.c_uint32),
        ("vaspace", ctypes.c_uint32),
        ("userd_memory", ctypes.c_uint32 * 8),
        ("userd_offset", ctypes.c_uint64 * 8),
        ("engine_type", ctypes.c_uint32),
        ("rest", ctypes.c_uint8 * 236),
        # Where it would be written past its end.
        ("beyond", ctypes.c_uint8 * 64),
    ]


@pytest.fixture(scope="module")
def probe(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    library = compiled(PROBE, tmp_path_factory.mktemp("channel"))
    library.max.restype = ctypes.c_size_t
    return library


def places() -> list[tuple[str, int, dict[str, tuple[int, int]]]]:
    """By served driver: the size, and where NVIDIA's fields are."""
    found = []
    for release in parity.served(interface.read(), store.load()):
        fields = release.facts["field"]
        if (PARAMS, FIELDS["userd_memory"]) in fields:
            at = {ours: fields[(PARAMS, theirs)] for ours, theirs in FIELDS.items()}
            size = int(fields[(PARAMS, "(size)")][1])
            found.append(
                (release.version, size, {name: (int(place, 16), int(n)) for name, (place, n) in at.items()})
            )
    return found


def test_fields_of_a_channel_are_read_where_the_driver_has_them(probe: ctypes.CDLL) -> None:
    known = places()
    assert len({tuple(sorted(at.items())) for _, _, at in known}) > 1, (
        "every driver has the same: none moved them"
    )
    for version, size, at in known:
        params = bytes(number * 7 % 251 for number in range(size))
        out = Channel()
        assert probe.read_params(version.encode(), params, ctypes.byref(out)) == size
        for name, (place, length) in at.items():
            field = getattr(Channel, name)
            assert bytes(out)[field.offset : field.offset + length] == params[place : place + length], (
                f"{name} in {version}"
            )


def test_channel_params_survive_reading_and_writing(probe: ctypes.CDLL) -> None:
    for version, size, at in places():
        params = bytes(number * 11 % 253 for number in range(size))
        out, back = Channel(), ctypes.create_string_buffer(probe.max())
        probe.read_params(version.encode(), params, ctypes.byref(out))
        assert probe.write_params(version.encode(), ctypes.byref(out), back) == size
        for name, (place, length) in at.items():
            assert back.raw[place : place + length] == params[place : place + length], f"{name} in {version}"
