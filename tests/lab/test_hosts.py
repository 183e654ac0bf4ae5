"""What a disk holds after a cut, and what files may be like then: the parts that need no guest."""

import struct
from pathlib import Path

import pytest

from lab.error import LabError
from lab.hosts import cuts, kernels, write_log
from lab.places import REPOSITORY

FLUSH, FUA, DISCARD = 1, 2, 4
WITH = {"etc/daemon.json": b"mgpu", "etc/runtime.conf": b"runc"}
WITHOUT = {"etc/daemon.json": b"{}"}


def _log(folder: Path, *told: tuple[int, int, bytes]) -> Path:
    """told: sector, flags, what is written there."""
    path = folder / "writes.log"
    head = struct.pack("<QQQI", 0x6A736677736872, 1, len(told), 512)
    text = head.ljust(512, b"\0")
    for sector, flags, data in told:
        text += struct.pack("<QQQQ", sector, len(data) // 512, flags, 0).ljust(512, b"\0") + data
    path.write_bytes(text)
    return path


def _sectors(letters: str) -> bytes:
    return b"".join(letter.encode() * 512 for letter in letters)


def test_what_was_flushed_is_on_the_disk_whatever_the_luck(tmp_path: Path) -> None:
    log = _log(tmp_path, (0, 0, _sectors("ab")), (0, FLUSH, b""), (1, 0, _sectors("cd")))
    disk = tmp_path / "disk"
    seen = set()
    for seed in range(40):
        disk.write_bytes(_sectors("...."))
        write_log.write(log, write_log.left(write_log.entries(log), seed), disk)
        seen.add(disk.read_bytes()[::512].decode())
    assert seen == {"ab..", "ac..", "acd."}


def test_writes_through_the_cache_stay(tmp_path: Path) -> None:
    log = _log(tmp_path, (0, FUA, _sectors("a")), (1, 0, _sectors("b")))
    kept = [write_log.left(write_log.entries(log), seed) for seed in range(20)]
    assert {len(each) for each in kept} == {1, 2}
    assert all(each[0].entry.stays for each in kept)


def test_entry_that_was_cut_off_is_none(tmp_path: Path) -> None:
    log = _log(tmp_path, (0, 0, _sectors("a")), (1, 0, _sectors("b")))
    log.write_bytes(log.read_bytes()[:-1])
    assert [entry.sector for entry in write_log.entries(log)] == [0]


def test_discarded_sectors_have_no_content_in_the_log(tmp_path: Path) -> None:
    log = _log(tmp_path, (0, 0, _sectors("a")))
    discard = struct.pack("<QQQQ", 8, 100, DISCARD, 0).ljust(512, b"\0")
    log.write_bytes(log.read_bytes() + discard)
    assert [(entry.sectors, entry.end) for entry in write_log.entries(log)] == [(1, 1536), (0, 2048)]


def test_other_files_are_no_logs(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"x" * 1024)
    with pytest.raises(write_log.NotALog, match="magic 7878"):
        write_log.entries(tmp_path / "other")


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (WITH, []),
        (WITHOUT, []),
        ({"etc/daemon.json": b"{}", "etc/runtime.conf": b"runc"}, []),
        ({**WITH, "etc/.daemon.json.mgpu-new": b""}, []),
        ({**WITH, "etc/daemon.json": b""}, ["etc/daemon.json: is empty, which no command left"]),
        (
            {**WITH, "etc/daemon.json": b"\0\0"},
            ["etc/daemon.json: 2 bytes, all zero, which no command left"],
        ),
        ({"etc/runtime.conf": b"runc"}, ["etc/daemon.json: is not there, which no command left"]),
        ({**WITH, "etc/other": b"x"}, ["etc/other: 1 bytes, which no command left"]),
    ],
)
def test_files_are_as_before_a_command_or_as_after_it(found: dict[str, bytes], said: list[str]) -> None:
    assert cuts.wrong(found, [WITH, WITHOUT]) == said


def test_engine_that_names_mgpu_needs_all_of_it() -> None:
    engines = {"etc/daemon.json": ("etc/runtime.conf",)}
    assert cuts.dangling(WITH, engines) == []
    assert cuts.dangling(WITHOUT, engines) == []
    assert cuts.dangling({"etc/daemon.json": b"mgpu"}, engines) == [
        "etc/daemon.json names mgpu without etc/runtime.conf"
    ]


def test_kernels_are_named_by_their_first_numbers() -> None:
    assert kernels.named("6.1").suite == "bookworm"
    assert kernels.named("6.12").suite == "trixie"
    with pytest.raises(LabError, match=r"6 is no kernel; there are 5\.10"):
        kernels.named("6")


def test_oldest_kernel_is_the_least_that_setup_and_readme_ask_for() -> None:
    least = ".".join(kernels.KERNELS[0].release.split(".")[:2])
    assert f"\nleast={least}\n" in (REPOSITORY / "tools/setup.sh").read_text()
    assert f"- Linux {least} or newer" in (REPOSITORY / "README.md").read_text()
