"""What executes: engine status from a card's registers, of the runlists that the resource manager tells
of."""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from fake_rm import DUP, MAP, REGISTER_FD, SHARE, MigRm, Rm
from nvidia_parts import CTL, Driver, driver, library, processes

from tests.support.rm_numbers import NV2080_ENGINE_TYPE_COPY0


@pytest.fixture
def rm() -> Rm:
    return Rm()


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
        (0x7FFF_1FFF & ~0xE000, 0xFFF, 0),
    ],
)
def test_engine_status(word: int, tsg: int, busy: int) -> None:
    assert library().harness_decode(ctypes.c_uint32(word)) == busy << 32 | tsg


@pytest.mark.parametrize("word", [0xFFFF_FFFF, 0xBADF_5040, 0xBAD0_0100])
def test_implausible_engine_status_is_ignored(word: int) -> None:
    assert library().harness_decode(ctypes.c_uint32(word)) == -1


BAR_BYTES = 1 << 20


@pytest.fixture
def bar(tmp_path: Path) -> Path:
    path = tmp_path / "pci" / "0000:65:00.0" / "resource0"
    path.parent.mkdir(parents=True)
    path.write_bytes(bytes(BAR_BYTES))
    return path


def write_word(bar: Path, at: int, word: int) -> None:
    with bar.open("r+b") as f:
        f.seek(at)
        f.write(struct.pack("I", word))


def status(nvidia: Driver, card: int = 0) -> list[tuple[int, int, int]]:
    """The group, whether it executes, and on which engines: a bit each."""
    out = (ctypes.c_uint32 * 48)()
    n = nvidia.call("engines", card, out)
    assert n >= 0
    return [(out[3 * i], out[3 * i + 1], out[3 * i + 2]) for i in range(n)]


def engines(nvidia: Driver, card: int = 0) -> list[tuple[int, int]]:
    return [one[:2] for one in status(nvidia, card)]


def test_engines_are_found_once_each_and_read(rm: Rm, bar: Path, tmp_path: Path) -> None:
    rm.cards = 1
    # Graphics and the first copy engine share a runlist; one lies outside; one cannot be read.
    rm.bases = {1: 0x1000, 9: 0x1000, 10: 0x2000, 11: BAR_BYTES - 0x200, 12: 0x3000, 13: 2}
    write_word(bar, 0x3200, 0xBADF_1234)
    with driver(tmp_path, rm) as nvidia:
        nvidia.add_card(0)
        assert engines(nvidia) == [(0, 0), (0, 0)]
        write_word(bar, 0x1200, 0x8000_0007)
        write_word(bar, 0x2200, 0x0000_2008)
        assert engines(nvidia) == [(7, 1), (8, 0)]
        write_word(bar, 0x2200, 0xFFFF_FFFF)
        out = (ctypes.c_uint32 * 48)()
        assert nvidia.call("engines", 0, out) == -errno.EIO, "half a status would show somebody idle"
        nvidia.add_card(1, minor=1)
        assert engines(nvidia, card=1) == []


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
        assert [one[2] for one in status(nvidia)] == [1 << 1 | 1 << 9, 1 << 10, 1 << (0x3D - 32)]


def test_status_needs_registers(rm: Rm, tmp_path: Path) -> None:
    rm.cards = 1
    with driver(tmp_path, rm) as nvidia:
        nvidia.add_card(0)
        assert engines(nvidia) == []


BUSY = 0x8000_0000
GRAPHICS, COPY0, COPY1 = 1, NV2080_ENGINE_TYPE_COPY0, NV2080_ENGINE_TYPE_COPY0 + 1


@pytest.fixture
def mig(bar: Path, tmp_path: Path) -> MigRm:
    """Two GPU instances; the first has two compute instances, which share a copy engine."""
    caps = tmp_path / "dev" / "nvidia-caps"
    caps.mkdir(parents=True)
    lines = []
    for gpu, compute in ((3, 0), (3, 1), (5, 0)):
        lines += [f"gpu0/gi{gpu}/access {gpu}", f"gpu0/gi{gpu}/ci{compute}/access {10 * gpu + compute}"]
        for minor in (gpu, 10 * gpu + compute):
            (caps / f"nvidia-cap{minor}").touch()
    (tmp_path / "dev" / "mig-minors").write_text("\n".join(["config 1", *lines]) + "\n")
    instances = {
        (3, 0): {GRAPHICS: 0x1000, COPY0: 0x2000},
        (3, 1): {GRAPHICS: 0x3000, COPY0: 0x2000},
        (5, 0): {GRAPHICS: 0x4000, COPY0: 0x5000, COPY1: 0x6000},
    }
    for base in (0x1000, 0x2000, 0x3000, 0x4000, 0x5000, 0x6000):
        write_word(bar, base + 0x200, BUSY | base >> 12)
    return MigRm(cards=1, instances=instances, caps=str(caps))


@contextmanager
def on_instances(folder: Path, mig: MigRm) -> Iterator[Driver]:
    with driver(folder, mig) as nvidia:
        for index, instance in enumerate(((3, 0), (3, 1), (5, 0))):
            nvidia.add_card(index, instance=instance)
        yield nvidia


def test_an_instance_has_the_engines_that_are_its_own(mig: MigRm, tmp_path: Path) -> None:
    with on_instances(tmp_path, mig) as nvidia:
        assert [engines(nvidia, card) for card in range(3)] == [
            [(1, 1), (2, 1)],
            [(3, 1), (2, 1)],
            [(4, 1), (5, 1), (6, 1)],
        ]
        assert [one[2] for one in status(nvidia, 2)] == [1 << GRAPHICS, 1 << COPY0, 1 << COPY1]


def test_an_instance_is_not_kept_from_being_deleted(mig: MigRm, tmp_path: Path) -> None:
    """RM deletes none that has a subscriber: there is one while it is asked, and none after."""
    with on_instances(tmp_path, mig) as nvidia:
        assert mig.most == 2
        assert mig.subscriptions == 0
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
        assert mig.subscriptions == 0


def test_a_card_with_instances_has_no_engines_as_a_whole(mig: MigRm, tmp_path: Path) -> None:
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
        assert mig.subscriptions == 0
        assert REGISTER_FD in [c.nr for c in mig.calls]
