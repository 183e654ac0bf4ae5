"""The card as drivers of several versions: it takes the sizes of that version and no others."""

import os
import struct
from pathlib import Path

import pytest

from oci_specs import paths
from sim.cards import running
from tests.sim.card_protocol import (
    CHANNEL_GROUP,
    INVALID_ARGUMENT,
    MEMORY,
    OK,
    TSG_SCHEDULE,
    Client,
    Connection,
    channel_params,
    group_params,
    host_params,
    memory_params,
)
from tests.support import rm_interface
from tests.support import rm_numbers as nv
from tests.support.commands import attempt

INTERFACE = rm_interface.read()
FB_GET_INFO_V2 = nv.NV2080_CTRL_CMD_FB_GET_INFO_V2
PERFMON_UTIL = nv.NV2080_CTRL_CMD_PERF_GET_GPUMON_PERFMON_UTIL_SAMPLES_V2
CHANNEL_VOLTA = nv.VOLTA_CHANNEL_GPFIFO_A
MIB = 1 << 20


@pytest.mark.parametrize(
    "version",
    [
        "535.183.01",
        "545.29.06",
        "550.163.01",
        "570.211.01",
        "575.64.05",
        "580.95.05",
        "595.45.04",
        "610.43.03",
        "615.71.09",
    ],
)
def test_sizes_are_the_versions(tmp_path: Path, version: str) -> None:
    at = (int(version[:3]), int(version.split(".")[1]))
    sizes = {name: INTERFACE.size_at(name, at) or 0 for name in INTERFACE.sizes}
    options = ["--driver-version", version]
    with (
        running(tmp_path, "v100-16", rm_call_us=0, options=options) as card,
        Connection(card.card_socket) as line,
    ):
        client = Client(line)
        for wrong in (-1, 1, 0):
            status = OK if not wrong else INVALID_ARGUMENT
            params = (group_params() + bytes(9))[: sizes["NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS"] + wrong]
            made, group = client.alloc(client.device, CHANNEL_GROUP, params)
            assert made == status
        for wrong in (0, -1, 1):
            status = OK if not wrong else INVALID_ARGUMENT
            params = (memory_params(MIB) + bytes(8))[: sizes["NV_MEMORY_ALLOCATION_PARAMS"] + wrong]
            assert client.alloc(client.device, MEMORY, params)[0] == status
            assert (
                client.control(
                    TSG_SCHEDULE, bytes(sizes["NVA06C_CTRL_GPFIFO_SCHEDULE_PARAMS"] + wrong), group
                )[0]
                == status
            )
            assert (
                client.control(
                    FB_GET_INFO_V2, b"\1".ljust(sizes["NV2080_CTRL_FB_GET_INFO_V2_PARAMS"] + wrong, b"\0")
                )[0]
                == status
            )
        _, ring = client.alloc(
            client.device, 0x3E, host_params(65536)[: sizes["NV_MEMORY_ALLOCATION_PARAMS"]]
        )
        params = channel_params(ring, userd=0, ring=4096, entries=64) + bytes(8)
        if at >= (610, 43):
            # A handle before USERD's, and the offsets aligned.
            params = params[:0x20] + bytes(4) + params[0x20:0x40] + bytes(4) + params[0x40:]
        params = params[: sizes["NV_CHANNEL_ALLOC_PARAMS"]]
        status, channel = client.alloc(group, CHANNEL_VOLTA, params)
        assert status == OK
        userd, offset = line.userd(client.file.id, client.root, channel)
        os.close(userd)
        assert offset == 0
        client.close()


def test_entry_count_above_the_parameters_is_refused(tmp_path: Path) -> None:
    with (
        running(tmp_path, "v100-16", rm_call_us=0, options=["--driver-version", "535.183.01"]) as card,
        Connection(card.card_socket) as line,
    ):
        client = Client(line)
        for count, status in ((54, OK), (55, 0x1F), (0xFFFFFFFF, 0x1F)):
            params = count.to_bytes(4, "little") + bytes(432)
            assert client.control(FB_GET_INFO_V2, params)[0] == status
        client.close()


@pytest.mark.parametrize("version", ["600.1", "535.54.03", "x", "", "580" + ".1" * 40])
def test_unknown_version_is_refused_with_the_known_ones(tmp_path: Path, version: str) -> None:
    argv = [
        paths.libexec("mgpu-simcard"),
        "--dir",
        str(tmp_path),
        "--cards",
        "a10",
        "--driver-version",
        version,
    ]
    ended = attempt(*argv)
    assert (ended.status, ended.out) == (2, "")
    assert ended.err.count("\n") == 1
    assert "535.86, 545.23" in ended.err


@pytest.mark.parametrize("version", ["535.183.01", "550.163.01", "570.211.01", "580.95.05", "595.45.04"])
def test_utilisation_in_the_versions_layout(tmp_path: Path, version: str) -> None:
    at = (int(version[:3]), int(version.split(".")[1]))
    whole, sample_bytes = (
        INTERFACE.size_at(name, at) or 0
        for name in (
            "NV2080_CTRL_PERF_GET_GPUMON_PERFMON_UTIL_SAMPLES_V2_PARAMS",
            "NV2080_CTRL_PERF_GPUMON_PERFMON_UTIL_SAMPLE",
        )
    )
    options = ["--driver-version", version]
    with (
        running(tmp_path, "v100-16", rm_call_us=0, options=options) as card,
        Connection(card.card_socket) as line,
    ):
        client = Client(line)
        head = struct.pack("<B3xIII", 2, whole - 16, 0, 0)
        status, answer = client.control(PERFMON_UTIL, head + bytes(whole - 16))
        assert (status, struct.unpack_from("<III", answer, 4)) == (OK, (whole - 16, 72, 0))
        times = [struct.unpack_from("<Q", answer, at)[0] for at in range(16, whole, sample_bytes)]
        assert {after - before for after, before in zip(times[1:], times, strict=False)} == {10**10 // 72}
        for wrong in (0, 1, whole):
            head = struct.pack("<B3xIII", 2, wrong, 0, 0)
            assert client.control(PERFMON_UTIL, head + bytes(whole - 16))[0] == INVALID_ARGUMENT
        assert client.control(PERFMON_UTIL, bytes(whole - 1))[0] == INVALID_ARGUMENT
        client.close()
