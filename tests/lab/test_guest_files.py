"""What a guest is made of: an initramfs, the kernel's modules in order, a firmware file without code."""

import lzma
import stat
import subprocess
from pathlib import Path

import pytest

from lab import collection, firmware, initramfs, kernel_modules, pairs
from lab.error import LabError
from tests.support.commands import run


def module(folder: Path, name: str, needs: str) -> None:
    held = b"\x7fELF...depends=" + needs.encode() + b"\0license=GPL\0"
    path = folder / f"{name}.ko"
    if name.endswith("_xz"):
        path.with_suffix(".ko.xz").write_bytes(lzma.compress(held))
    else:
        path.write_bytes(held)


def test_modules_come_after_what_they_need(tmp_path: Path) -> None:
    module(tmp_path, "ext4", "jbd2,mb-cache")
    module(tmp_path, "jbd2", "")
    module(tmp_path, "mb-cache", "crc_xz")
    module(tmp_path, "crc_xz", "")
    names = [name for name, _ in kernel_modules.in_order(tmp_path, ["ext4", "built_in", "jbd2"])]
    assert names == ["jbd2", "crc_xz", "mb_cache", "ext4"]


def test_initramfs_is_what_cpio_reads(tmp_path: Path) -> None:
    made = initramfs.made(
        b"busybox", [("ext4", b"module")], [("lab/a/b.py", 0o644, b"text")], mounts="true", start="/init"
    )
    subprocess.run(["busybox", "cpio", "-id"], input=made, cwd=tmp_path, check=True, capture_output=True)
    assert (tmp_path / "lab/a/b.py").read_bytes() == b"text"
    assert "for module in ext4; do" in (tmp_path / "init").read_text()
    assert stat.S_IMODE((tmp_path / "bin/busybox").stat().st_mode) == 0o755


def test_firmware_has_the_sections_that_are_looked_for(tmp_path: Path) -> None:
    path = tmp_path / "gsp.bin"
    path.write_bytes(firmware.made("550.163.01"))
    said = run("readelf", "-S", "-W", path)
    for section in (".fwversion", ".fwimage", ".fwsignature_ga10x"):
        assert section in said


def test_pairs_are_found_by_name() -> None:
    for pair in pairs.PAIRS:
        assert pairs.named(pair.name) is pair
    with pytest.raises(LabError, match="is no pair; there are"):
        pairs.named("1-2")


def test_modules_of_somebody_elses_say_their_driver(tmp_path: Path) -> None:
    first = pairs.PAIRS[0]
    with pytest.raises(LabError, match=r"nvidia\.ko: No such file"):
        pairs.with_driver(first, tmp_path)
    (tmp_path / "nvidia.ko").write_bytes(b"\x7fELF license=Dual MIT/GPL\0version=999.1\0vermagic=6.1\0")
    found = pairs.with_driver(first, tmp_path)
    assert (found.driver.branch, found.kernel) == (999, first.kernel)
    (tmp_path / "nvidia.ko").write_bytes(b"\x7fELF")
    with pytest.raises(LabError, match="does not say its version"):
        pairs.with_driver(first, tmp_path)


def test_every_test_names_rows_of_the_docs() -> None:
    assert collection.tests((), collection.every)
    with pytest.raises(LabError, match=r"no test of lab/tests is called"):
        collection.tests(["nothing"], collection.every)


def test_usual_list_has_a_sample_of_the_long_ones() -> None:
    short, usual = collection.tests((), collection.short), collection.tests((), collection.usual)
    assert [test.name for test in usual[: len(short)]] == [test.name for test in short]
    assert "under_mgpu.tinygrad_ends_at_the_cap" in {test.name for test in usual[len(short) :]}
    assert len(short) < len(usual) < len(collection.tests((), collection.every))
