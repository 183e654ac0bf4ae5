"""What the simulated card tells of itself, by chip and driver version: programs choose their classes by
it."""

import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from oci_specs import paths
from sim.cards import running
from tests.sim.card_protocol import (
    CONTROL,
    INVALID_ARGUMENT,
    INVALID_PARAMS,
    NOT_SUPPORTED,
    OK,
    Client,
    Connection,
    rm_cmd,
)
from tests.support import rm_interface
from tests.support import rm_numbers as nv
from tests.support.commands import attempt
from tests.support.places import REPOSITORY
from tests.support.tsv import read

FACTS = REPOSITORY / "sim" / "card" / "facts"
RM_FACTS = REPOSITORY / "native_sched/nvidia/rm" / "facts"
NEWEST_COMPLETE = (595, 45)
SIZE = re.compile(r"^SIZE\((\w+), (\d+), (\d+), (\w+)\)$", re.M)
LISTED = re.compile(r"^LISTED\((\w+), (0x\w+), (\d+), (\d+), (\d+), (\d+), (.*)\)$", re.M)
CHIP_OF = {
    "v100-16": "GV100",
    "titan-rtx": "TU102",
    "t4": "TU104",
    "a10": "GA102",
    "a100-40": "GA100",
    "l4": "AD104",
    "l40": "AD102",
    "h100": "GH100",
    "h200": "GH100",
    "rtx-4090": "AD102",
    "b200": "GB100",
    "rtx-5090": "GB202",
}
# Of the engines: what NVIDIA's programming guides and nouveau name for a generation.
ENGINES_OF = {
    "GV100": {nv.VOLTA_CHANNEL_GPFIFO_A, nv.VOLTA_COMPUTE_A, nv.VOLTA_DMA_COPY_A},
    "TU102": {nv.TURING_CHANNEL_GPFIFO_A, nv.TURING_COMPUTE_A, nv.TURING_DMA_COPY_A},
    "TU104": {nv.TURING_CHANNEL_GPFIFO_A, nv.TURING_COMPUTE_A, nv.TURING_DMA_COPY_A},
    "GA100": {nv.AMPERE_CHANNEL_GPFIFO_A, nv.AMPERE_COMPUTE_A, nv.AMPERE_DMA_COPY_A},
    "GA102": {nv.AMPERE_CHANNEL_GPFIFO_A, nv.AMPERE_COMPUTE_B, nv.AMPERE_DMA_COPY_B},
    "AD102": {nv.AMPERE_CHANNEL_GPFIFO_A, nv.ADA_COMPUTE_A, nv.AMPERE_DMA_COPY_B},
    "AD104": {nv.AMPERE_CHANNEL_GPFIFO_A, nv.ADA_COMPUTE_A, nv.AMPERE_DMA_COPY_B},
    "GH100": {nv.HOPPER_CHANNEL_GPFIFO_A, nv.HOPPER_COMPUTE_A, nv.HOPPER_DMA_COPY_A},
    "GB100": {nv.BLACKWELL_CHANNEL_GPFIFO_A, nv.BLACKWELL_COMPUTE_A, nv.BLACKWELL_DMA_COPY_A},
    "GB202": {nv.BLACKWELL_CHANNEL_GPFIFO_B, nv.BLACKWELL_COMPUTE_B, nv.BLACKWELL_DMA_COPY_B},
}
COMPUTE = set().union(*({n for n in engines if n & 0xFF == 0xC0} for engines in ENGINES_OF.values()))
INTERFACE = rm_interface.read()
NUMBER = {item.name: item.number for item in INTERFACE.controls}
LISTS_BYTES = {item.name: item.size for item in INTERFACE.controls if item.lists}


def facts(chip: str, version: tuple[int, int]) -> list[int]:
    return [
        int(number, 16)
        for _, number, *versions, chips in LISTED.findall((FACTS / "class_lists.def").read_text())
        for since, until in [((int(versions[0]), int(versions[1])), (int(versions[2]), int(versions[3])))]
        if f"ON({chip})" in chips and since <= version and (until == (0, 0) or version < until)
    ]


@contextmanager
def a_client(folder: Path, profile: str, version: str = "580.95.05") -> Iterator[Client]:
    options = ["--driver-version", version]
    with (
        running(folder, profile, rm_call_us=0, options=options) as card,
        Connection(card.card_socket) as line,
    ):
        client = Client(line)
        yield client
        client.close()


def listed(
    client: Client, name: str, count: int, *lists: bytes, handle: int | None = None
) -> tuple[int, bytes]:
    """A control whose parameters point to lists, which lie behind them."""
    params_bytes = LISTS_BYTES[name]
    assert isinstance(params_bytes, int)
    pointers = struct.pack(f"<{len(lists)}Q", *(int(bool(one)) for one in lists))
    params = (struct.pack("<II", count, 0) + pointers).ljust(params_bytes, b"\0")
    whole = b"".join(part.ljust(-(-len(part) // 16) * 16, b"\0") for part in (params, *lists))
    target = client.subdevice if handle is None else handle
    outer = struct.pack("<IIIIQII", client.root, target, NUMBER[name], 0, 0, params_bytes, 0xDEAD)
    outer, back = client.connection.ioctl(
        client.file.id, rm_cmd(CONTROL, len(outer)), outer, whole if count else params
    )
    return struct.unpack_from("<I", outer, 28)[0], back


@pytest.mark.parametrize(
    ("profile", "version"), [*((name, "580.95.05") for name in CHIP_OF), ("a10", "535.86.05")]
)
def test_classes_are_the_chips(tmp_path: Path, profile: str, version: str) -> None:
    chip = CHIP_OF[profile]
    with a_client(tmp_path, profile, version) as client:
        status, params = listed(client, "NV0080_CTRL_CMD_GPU_GET_CLASSLIST", 0, b"", handle=client.device)
        count = int.from_bytes(params[:4], "little")
        assert (status, count) == (OK, len(facts(chip, (int(version[:3]), int(version[4:6])))))
        status, back = listed(
            client, "NV0080_CTRL_CMD_GPU_GET_CLASSLIST", count, bytes(4 * count), handle=client.device
        )
        classes = list(struct.unpack_from(f"<{count}I", back, 16))
        assert status == OK
        assert classes == facts(chip, (int(version[:3]), int(version[4:6])))
        assert ENGINES_OF[chip] <= set(classes)
        assert COMPUTE & set(classes) == COMPUTE & ENGINES_OF[chip]
        short = listed(client, "NV0080_CTRL_CMD_GPU_GET_CLASSLIST", 2, bytes(8), handle=client.device)
        assert short[0] == INVALID_PARAMS
        room = 804 if version > "580" else 644
        status, params = client.control(
            NUMBER["NV0080_CTRL_CMD_GPU_GET_CLASSLIST_V2"], bytes(room), client.device
        )
        assert (status, list(struct.unpack_from(f"<{count + 1}I", params))) == (OK, [count, *classes])
        wrong = client.control(
            NUMBER["NV0080_CTRL_CMD_GPU_GET_CLASSLIST_V2"], bytes(room + 4), client.device
        )
        assert wrong[0] == INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("profile", "known"),
    [
        ("titan-rtx", [6, 6, 2, 32, 0x705]),
        ("a10", [7, 6, 2, 48, 0x806]),
        ("l4", [5, 6, 2, 48, 0x809]),
        ("h200", [8, 9, 2, 64, 0x900]),
        ("rtx-5090", [12, 8, 2, 48, 0xA04]),
    ],
)
def test_graphics_engine_is_the_chips(tmp_path: Path, profile: str, known: list[int]) -> None:
    asked = (0x14, 0x17, 0x20, 0xD, 0xC)
    entries = b"".join(struct.pack("<II", index, 0xDEAD) for index in asked)
    with a_client(tmp_path, profile) as client:
        status, back = listed(client, "NV2080_CTRL_CMD_GR_GET_INFO", len(asked), entries)
        assert status == OK
        assert [struct.unpack_from("<I", back, 36 + 8 * i)[0] for i in range(len(asked))] == known
        status, mask = client.control(NUMBER["NV2080_CTRL_CMD_GR_GET_GPC_MASK"], bytes(24))
        assert (status, int.from_bytes(mask[16:20], "little")) == (OK, (1 << known[0]) - 1)
        tpcs = 0
        for gpc in range(known[0] + 1):
            asking = bytes(16) + struct.pack("<II", gpc, 0)
            status, mask = client.control(NUMBER["NV2080_CTRL_CMD_GR_GET_TPC_MASK"], asking)
            assert (status == OK) == (gpc < known[0])
            tpcs += int.from_bytes(mask[20:24], "little").bit_count()
        status, order = client.control(NUMBER["NV2080_CTRL_CMD_GR_GET_GLOBAL_SM_ORDER"], bytes(9240))
        assert (status, struct.unpack_from("<HH", order, 512 * 18)) == (OK, (2 * tpcs, tpcs))


def test_memory_is_described_as_by_the_driver(tmp_path: Path) -> None:
    """Bits of the bus, bytes of the cache, and no node of the host's memory: indices of ctrl2080fb.h."""
    asked = (0xB, 0x1B, 0x3B)
    params = struct.pack("<I", len(asked)) + b"".join(struct.pack("<II", index, 0xDEAD) for index in asked)
    with a_client(tmp_path, "a10") as client:
        status, back = client.control(NUMBER["NV2080_CTRL_CMD_FB_GET_INFO_V2"], params.ljust(1028, b"\0"))
        assert status == OK
        assert [struct.unpack_from("<I", back, 8 + 8 * i)[0] for i in range(3)] == [384, 6 << 20, 0xFFFFFFFF]


def test_copy_engines_are_told_in_the_place_of_the_version(tmp_path: Path) -> None:
    with a_client(tmp_path, "a10") as client:
        status, back = client.control(NUMBER["NV2080_CTRL_CMD_CE_GET_ALL_CAPS"], bytes(136))
        assert (status, back) == (OK, bytes(128) + struct.pack("<Q", 0b11111))


def test_driver_says_its_version(tmp_path: Path) -> None:
    with a_client(tmp_path, "a10", "570.86.15") as client:
        name = "NV0000_CTRL_CMD_SYSTEM_GET_BUILD_VERSION"
        status, params = listed(client, name, 0, b"", b"", b"", handle=client.root)
        longest = int.from_bytes(params[:4], "little")
        assert (status, longest > 20) == (OK, True)
        status, back = listed(client, name, longest, *[bytes(longest)] * 3, handle=client.root)
        assert (status, back[48:].partition(b"\0")[0]) == (OK, b"570.86.15")
        room = longest - 1
        assert listed(client, name, room, *[bytes(room)] * 3, handle=client.root)[0] == INVALID_PARAMS
        status, params = client.control(0x13E, bytes(1032), client.root)
        assert (status, params.partition(b"\0")[0]) == (OK, b"570.86.15")
        assert client.control(0x13E, bytes(776), client.root)[0] == INVALID_ARGUMENT


def test_controls_of_later_versions_are_unsupported(tmp_path: Path) -> None:
    engine = NUMBER["NVC36F_CTRL_GET_CLASS_ENGINEID"]
    for version, status in (("550.54.14", OK), ("555.42.02", NOT_SUPPORTED)):
        with a_client(tmp_path, "titan-rtx", version) as client:
            channel = client.made(client.group(), nv.TURING_CHANNEL_GPFIFO_A)
            asked = struct.pack("<4I", channel, 0, 0, 0)
            assert client.control(engine, asked, channel)[0] == status


def test_driver_before_the_chip_is_refused(tmp_path: Path) -> None:
    argv: list[str | Path] = [paths.libexec("mgpu-simcard"), "--dir", tmp_path]
    argv += ["--cards", "b200", "--driver-version", "550.54.14"]
    ended = attempt(*argv)
    assert (ended.status, ended.err) == (
        2,
        'mgpu-simcard: --driver-version: "550.54.14" does not know a NVIDIA B200: take 560.28 or a newer one\n',
    )


def test_classes_that_the_chip_does_not_list_are_refused(tmp_path: Path) -> None:
    with a_client(tmp_path, "a10") as client:
        group = client.group()
        assert client.alloc(group, nv.AMPERE_CHANNEL_GPFIFO_A)[0] == OK
        assert client.alloc(group, nv.HOPPER_CHANNEL_GPFIFO_A)[0] == nv.NV_ERR_INVALID_CLASS


def test_sizes_are_the_headers() -> None:
    """Each size that the card takes is what the headers of every version say that it is for; none says
    less."""
    sizes: dict[int, list[tuple[tuple[int, int], int | None]]] = {}
    for name, major, minor, bytes_ in SIZE.findall((FACTS / "control_sizes.def").read_text()):
        size = None if bytes_ == "SIZE_GONE" else int(bytes_)
        sizes.setdefault(NUMBER[name], []).append(((int(major), int(minor)), size))
    seen = 0
    for row in read(RM_FACTS / "control.tsv"):
        since = tuple(map(int, row["since"].split(".")[:2]))
        if int(row["number"], 16) not in sizes or row["bytes"] == "-" or since > NEWEST_COMPLETE:
            continue
        told = [size for at, size in sizes[int(row["number"], 16)] if at <= since]
        assert told[-1:] == [int(row["bytes"])], row
        seen += 1
    assert seen > len(sizes) * 3 // 4
