"""What executes: engine status from a card's registers, of the runlists that the resource manager tells
of."""

import ctypes
import errno
import os
import re
import struct
from pathlib import Path

import pytest

from tests.native.fake_rm import ALLOC, DUP, MAP, REGISTER_FD, SHARE, Call, MigRm, Rm
from tests.native.nvidia_parts import CTL, driver, library, processes
from tests.native.status_registers import (
    BAR_BYTES,
    BUSY,
    COPY0,
    COPY1,
    GRAPHICS,
    engines,
    on_instances,
    status,
    write_word,
)
from tests.support import chips, rm_interface
from tests.support import rm_numbers as nv


@pytest.fixture
def rm() -> Rm:
    return Rm()


VOLTA, TURING, AMPERE, BLACKWELL = 0x140, 0x160, 0x170, 0x1B0
ANOTHER = 0xFFFF_FFFF


def decoded(word: int, architecture: int = AMPERE) -> tuple[int, int] | None:
    """The group, and whether it executes; None: it does not look like a status."""
    decode = library().harness_decode
    decode.restype = ctypes.c_int64
    found = int(decode(architecture, ctypes.c_uint32(word)))
    return None if found < 0 else (found & 0xFFFF_FFFF, found >> 32)


@pytest.mark.parametrize("architecture", [AMPERE, BLACKWELL])
@pytest.mark.parametrize(
    ("word", "tsg", "busy"),
    [
        (0x0000_0000, 0, 0),
        (0x8000_0123, 0x123, 1),
        (0x0000_2ABC, 0xABC, 0),  # a context that is there and idle
        (0x0000_A001, 1, 1),  # saved
        (0x0000_C002, 0, 1),  # the next one is loaded, whatever was there
        (0x0123_C002, 0x123, 1),
        (0x8ABC_E003, 0xABC, 1),  # switched: from 3 to the next one
        (0x0ABC_A003, 3, 1),
        (0x7FFF_1FFF, 0xFFF, 0),
    ],
)
def test_engine_status(architecture: int, word: int, tsg: int, busy: int) -> None:
    assert decoded(word, architecture) == (tsg, busy)


@pytest.mark.parametrize(
    ("word", "tsg", "busy"),
    [
        (0x0000_0000, 0, 0),
        (0x8000_3123, 0x123, 1),
        (0x1007_B123, 7, 1),  # 5 is a load here, and 6 a save
        (0x1007_D123, 0x123, 1),
        (0x1007_F123, 7, 1),
        (0x8000_2123, ANOTHER, 1),  # the number of a channel
        (0x0007_B123, ANOTHER, 1),
    ],
)
def test_engine_status_before_ampere(word: int, tsg: int, busy: int) -> None:
    assert decoded(word, VOLTA) == (tsg, busy)


# All ones of a lost card; the bus's patterns; the context statuses that there are not.
@pytest.mark.parametrize(
    "word", [0xFFFF_FFFF, 0xBADF_5040, 0xBAD0_0100, 0x0000_4001, 0x8000_6001, 0x0000_8001]
)
@pytest.mark.parametrize("architecture", [VOLTA, AMPERE, BLACKWELL])
def test_what_does_not_look_like_a_status_is_not_believed(architecture: int, word: int) -> None:
    assert decoded(word, architecture) is None


def test_chips_are_as_the_facts_have_them() -> None:
    line = ctypes.create_string_buffer(200)
    lines: list[str] = []
    while library().harness_chip(len(lines), line, ctypes.c_size_t(200)):
        assert len(line.value) < 199
        lines.append(line.value.decode())
    assert lines == [
        f"{one.name} {one.architecture:#x} {one.implementation:#x} {one.whole_card:d} {one.status:#x} {one.stride} "
        f"{one.words} {one.loads} {one.has_get:d} {one.header}".replace(" 0x0 ", " 0 ")
        for one in chips.chips()
    ]


def test_each_fact_of_a_chip_has_its_source() -> None:
    """A header of NVIDIA's for the chip itself, or for one that NVIDIA's table of variants puts beside it."""
    for one in chips.chips():
        assert re.search(r"[0-9a-f]{8} hw_\w+\.h", one.source), one.name
        of = re.fullmatch(r"hw_\w+_(\w+)\.h", one.header)
        assert (of and of[1].upper()) == one.name or "g_kernel_fifo_nvoc.c has" in one.source, one.name


def test_gp_get_is_believed_where_class_and_chip_have_it() -> None:
    shows = library().harness_shows_get
    served = {one.number for one in rm_interface.read().classes if one.kind == "CHANNEL"}
    assert served == set(chips.userd()), "every class of channels has its fact"
    for number, (get, put) in chips.userd().items():
        assert (get in (None, 0x88), put) == (True, 0x8C)
        for one in chips.chips():
            wanted = get is not None and one.has_get
            assert bool(shows(True, one.architecture, one.implementation, number)) is wanted
        assert bool(shows(False, 0, 0, number)) is (get is not None), "of an unknown chip the class tells"
    assert not shows(False, 0, 0, 0xD06F), "nor of a class that there are no facts of"


def test_engines_are_found_once_each_and_read(rm: Rm, bar: Path, tmp_path: Path) -> None:
    rm.cards = 1
    # Graphics and the first copy engine share a runlist.
    rm.bases = {1: 0x1000, 9: 0x1000, 10: 0x2000}
    with driver(tmp_path, rm) as nvidia:
        nvidia.add_card(0)
        assert engines(nvidia) == [(0, 0)] * 4
        write_word(bar, 0x1200, 0x8000_0007)
        write_word(bar, 0x1280, 0x8000_0006)
        write_word(bar, 0x2200, 0x0000_2008)
        assert engines(nvidia) == [(7, 1), (0, 0), (6, 1), (8, 0)]
        write_word(bar, 0x2200, 0xFFFF_FFFF)
        out = (ctypes.c_uint32 * 48)()
        assert nvidia.call("engines", 0, out) == -errno.EIO, "half a status would show somebody idle"
        nvidia.add_card(1, minor=1)
        assert engines(nvidia, card=1) == []


@pytest.mark.parametrize("name", ["GV100", "TU104", "GA100", "AD102", "GH100", "GB100", "GB202"])
@pytest.mark.parametrize("index", [0, 1])
def test_word_is_read_where_the_chip_has_it(
    rm: Rm, bar: Path, tmp_path: Path, name: str, index: int
) -> None:
    """A long copy on an engine that shares graphics' runlist is seen as well."""
    chip = chips.named(name)
    rm.cards, rm.chip = 1, (chip.architecture, chip.implementation)
    rm.bases = {} if chip.whole_card else {1: 0x1000, 9: 0x1000, 10: 0x2000}
    base = 0 if chip.whole_card else 0x1000
    with driver(tmp_path, rm) as nvidia:
        nvidia.add_card(0)
        before = engines(nvidia)
        assert set(before) == {(0, 0)}
        assert len(before) == chip.words + (0 if chip.whole_card else 1)
        write_word(bar, base + chip.status + index * chip.stride, BUSY | 1 << 13 | 1 << 12 | 0x123)
        assert [at for at, one in enumerate(engines(nvidia)) if one == (0x123, 1)] == [index]


@pytest.mark.parametrize(
    ("bases", "words"),
    [
        ({1: 0x1000, 9: 0x1000, 10: 0x2000}, {0x2200: 0xBADF_1234}),
        ({1: 0x1000, 9: 0x1000, 10: 0x2000}, {0x1280: 0xFFFF_FFFF}),
        ({1: 0x1000, 9: 0x1000, 10: 0x2000}, {0x1240: 0x0000_4000}),
        ({1: 0x1000, 10: BAR_BYTES - 0x200}, {}),
        ({1: 0x1000, 10: 2}, {}),
        ({1: 0x1000, 9: 0x1000, 10: 0x1000, 11: 0x1000}, {}),
    ],
    ids=["locked", "all-ones", "no-status", "outside", "askew", "more-engines-than-words"],
)
def test_card_of_which_one_engine_cannot_be_seen_is_blind(
    rm: Rm, bar: Path, tmp_path: Path, bases: dict[int, int], words: dict[int, int]
) -> None:
    """What executed there would make its tenant look idle."""
    rm.cards, rm.bases = 1, bases
    for at, word in words.items():
        write_word(bar, at, word)
    with driver(tmp_path, rm) as nvidia:
        nvidia.add_card(0)
        assert engines(nvidia) == []


@pytest.mark.parametrize(
    "chip", [(0x1C0, 0), (0x180, 1), None], ids=["newer", "a-kind-without-a-row", "unsaid"]
)
def test_chip_without_a_row_is_blind(
    rm: Rm, bar: Path, tmp_path: Path, chip: tuple[int, int] | None
) -> None:
    rm.cards, rm.chip, rm.bases = 1, chip, {1: 0x1000}
    with driver(tmp_path, rm) as nvidia:
        nvidia.add_card(0)
        assert engines(nvidia) == []


@pytest.mark.parametrize("listed", [(84, 3), (84, 2), (64, 2), (63, 2), (62, 2)])
def test_runlists_are_listed_as_the_driver_s_version_does(
    rm: Rm, bar: Path, tmp_path: Path, listed: tuple[int, int]
) -> None:
    rm.cards = 1
    rm.bases = {1: 0x1000, 10: 0x2000}
    rm.listed = listed
    write_word(bar, 0x2200, 0x8000_0009)
    with driver(tmp_path, rm) as nvidia:
        nvidia.add_card(0)
        assert engines(nvidia) == [(0, 0), (9, 1)]


def test_engine_status_names_groups_of_its_runlist(rm: Rm, bar: Path, tmp_path: Path) -> None:
    """The number of a group means something among the groups of the engines on its runlist."""
    rm.cards = 1
    rm.bases = {1: 0x1000, 9: 0x1000, 10: 0x2000, 0x3D: 0x3000}
    with driver(tmp_path, rm) as nvidia:
        nvidia.add_card(0)
        # Of the eleventh copy engine and those after it the upper half of the bits tells.
        shared = 1 << 1 | 1 << 9
        assert [one[2] for one in status(nvidia)] == [shared] * 3 + [1 << 10, 1 << (0x3D - 32)]


# A file that can be opened and not be mapped, as resource0 is under IO_STRICT_DEVMEM.
UNMAPPABLE = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def test_registers_that_the_kernel_lets_nobody_map_are_mapped_by_rm(
    rm: Rm, bar: Path, tmp_path: Path
) -> None:
    rm.cards, rm.bases = 1, {1: 0x800}
    bar.unlink()
    bar.symlink_to(UNMAPPABLE)
    with driver(tmp_path, rm) as nvidia:
        node = tmp_path / "dev" / "nvidia0"
        node.write_bytes(bytes(UNMAPPABLE.stat().st_size))
        nvidia.add_card(0)
        [made] = [
            one for one in rm.calls if one.nr == ALLOC and rm_class(one) == nv.NV01_MEMORY_LOCAL_PRIVILEGED
        ]
        [mapped] = [one for one in rm.calls if one.nr == MAP]
        assert struct.unpack_from("<I", mapped.outer, 8) == struct.unpack_from("<I", made.outer, 8)
        assert mapped.passed_inode == node.stat().st_ino
        assert engines(nvidia) == [(0, 0)]
        write_word(node, 0xA00, BUSY | 7)
        assert engines(nvidia) == [(7, 1)]


def test_card_whose_registers_rm_refuses_too_is_blind(rm: Rm, bar: Path, tmp_path: Path) -> None:
    def refuse(nr: int, arg: int) -> int:
        if nr == MAP:
            ctypes.c_uint32.from_address(arg + 0x28).value = nv.NV_ERR_PROTECTION_FAULT
        return 0

    rm.cards, rm.bases, rm.answer = 1, {1: 0x800}, refuse
    bar.unlink()
    bar.symlink_to(UNMAPPABLE)
    with driver(tmp_path, rm) as nvidia:
        nvidia.add_card(0)
        assert engines(nvidia) == []


def rm_class(made: Call) -> int:
    return int(struct.unpack_from("<I", made.outer, 12)[0])


def test_status_needs_registers(rm: Rm, tmp_path: Path) -> None:
    rm.cards = 1
    with driver(tmp_path, rm) as nvidia:
        nvidia.add_card(0)
        assert engines(nvidia) == []


def test_instance_has_the_engines_that_are_its_own(mig: MigRm, tmp_path: Path) -> None:
    with on_instances(tmp_path, mig) as nvidia:
        assert [engines(nvidia, card) for card in range(3)] == [
            [(1, 1), (2, 1)],
            [(3, 1), (2, 1)],
            [(4, 1), (5, 1), (6, 1)],
        ]
        assert [one[2] for one in status(nvidia, 2)] == [1 << GRAPHICS, 1 << COPY0, 1 << COPY1]


def test_instance_is_not_kept_from_being_deleted(mig: MigRm, tmp_path: Path) -> None:
    """RM deletes none that has a subscriber: there is one while it is asked, and none after."""
    with on_instances(tmp_path, mig) as nvidia:
        assert mig.most == 2
        assert mig.mig_subscriptions == 0
        before = len(os.listdir("/proc/self/fd"))
        nvidia.add_card(3, instance=(5, 0))
        assert engines(nvidia, 3)
        assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("gone", ["instance", "node", "name", "compute"])
def test_instance_status_needs_its_capability(mig: MigRm, tmp_path: Path, gone: str) -> None:
    minors = tmp_path / "dev" / "mig-minors"
    if gone == "instance":
        del mig.instances[5, 0]
    elif gone == "node":
        (tmp_path / "dev" / "nvidia-caps" / "nvidia-cap50").unlink()
    elif gone == "name":
        minors.write_text(minors.read_text().replace("gi5/access", "gi6/access"))
    else:
        minors.write_text(minors.read_text().replace("gpu0/gi5/ci0/access 50", "gpu0/gi5/ci0/access 30"))
    with on_instances(tmp_path, mig) as nvidia:
        assert [len(engines(nvidia, card)) for card in range(3)] == [2, 2, 0]
        assert mig.mig_subscriptions == 0


def test_card_with_instances_has_no_engines_as_a_whole(mig: MigRm, tmp_path: Path) -> None:
    with driver(tmp_path, mig) as nvidia:
        nvidia.add_card(0)
        assert engines(nvidia) == []


def test_userd_is_duplicated_by_a_subscriber(mig: MigRm, tmp_path: Path) -> None:
    """RM lets no other process duplicate video memory of an instance."""
    (tmp_path / "dev" / "nvidia0").write_bytes(bytes(0x8C) + struct.pack("I", 77) + bytes(8192))
    during: list[tuple[int, tuple[int, int] | None]] = []

    def answer(nr: int, arg: int) -> int:
        if nr in (DUP, MAP):
            root = struct.unpack("I", ctypes.string_at(arg, 4))[0]
            during.append((nr, mig.subscribed(root)))
        return 0

    with on_instances(tmp_path, mig) as nvidia, processes() as start:
        process = start()
        file = nvidia.identify(process, process.tell("open", nvidia.nodes[CTL]))
        mig.answer = answer
        mig.calls.clear()
        assert nvidia.call("userd", ctypes.c_int64(file), 2, 0x40, ctypes.c_uint64(0)) == 77
        assert during == [(DUP, (5, 0)), (MAP, (5, 0))]
        shared, made = (next(c for c in mig.calls if c.nr == nr) for nr in (SHARE, DUP))
        assert struct.unpack_from("I", shared.outer, 8) == struct.unpack_from("I", made.outer), (
            "with it alone"
        )
        assert mig.mig_subscriptions == 0
        assert REGISTER_FD in [c.nr for c in mig.calls]
