"""A guest for a pair: everything that it is made of, and the initramfs that starts it."""

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from lab import firmware, images, initramfs, kernel_modules, machine, modules, packages, qemu
from lab.error import LabError
from lab.pairs import Pair
from lab.places import LAB, REPOSITORY

BUSYBOX = Path("/usr/bin/busybox")
NEEDED_BY_ROOT = ("virtio_pci", "virtio_blk", "ext4", "crc32c_generic", "crc32c_intel")
# What a test may import of the repository, beside mgpu as it is installed in the guest.
SOURCES = ("lab", "tests", "tools", "native_sched/nvidia/rm", "sim")
SUFFIXES = frozenset({".py", ".sh", ".tsv", ".play", ".def", ".h", ".c", ".txt", ".json"})
# From a start to the agent's first word, on a host that does much else.
BOOT_S = 400
ENGINE = "libmgpu_engine.so"
FIRMWARE = "firmware_class.path=/lab/firmware"
QUICK, SYSTEMD = "/lab/lab/guest/init.sh", "/sbin/init"
MOUNTS = """\
mount -t ext4 /dev/vda /root
mount -t ext4 /dev/vdb /root/project
mount -t tmpfs lab /root/lab
cp -a /lab/. /root/lab"""


@dataclass(frozen=True)
class GuestSpec:
    """What a guest is made of. card: the program that plays the cards; chip: its name of one. engine: mgpu's,
    in place of the one that is installed. modules: a folder with the driver's two, in place of the pair's.
    """

    pair: Pair
    card: Path
    chip: str = "ga102"
    cards: int = 1
    memory_mib: int = 2048
    start: str = QUICK
    append: str = ""
    engine: Path | None = None
    modules: Path | None = None


@dataclass(frozen=True)
class Prepared:
    """All that is started, and the folder of its logs. reports: what each card says of its GSP's answers."""

    programs: machine.Programs
    folder: Path
    reports: Sequence[Path]


@dataclass(frozen=True)
class Running:
    machine: machine.Machine
    reports: Sequence[Path]


@contextmanager
def prepared(spec: GuestSpec) -> Iterator[Prepared]:
    """Everything made, nothing started; the logs stay in build/lab/logs."""
    folder = LAB / "logs" / spec.pair.name
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    # A socket's path has to be short, wherever the repository lies.
    with TemporaryDirectory(prefix="mgpu-lab-") as made:
        sockets = [Path(made) / f"card{number}" for number in range(spec.cards)]
        kernel = spec.pair.kernel
        guest = qemu.Guest(
            kernel=packages.kernel_root(kernel) / f"boot/vmlinuz-{kernel.release}",
            initramfs=folder / "initramfs",
            disks=[qemu.Disk(images.root_image(kernel)), qemu.Disk(images.project_image(kernel.guest))],
            cards=sockets,
            append=" ".join((f"lab.chip={spec.chip} {FIRMWARE}", kernel.boot, spec.append)).rstrip(),
        )
        guest.initramfs.write_bytes(_initramfs(spec))
        reports = [folder / f"answers{number}.jsonl" for number in range(spec.cards)]
        cards = {
            path: _card(spec, number, path, reports[number], folder / f"card{number}.log")
            for number, path in enumerate(sockets)
        }
        words = qemu.command(packages.qemu_root(), guest)
        yield Prepared(machine.Programs(cards, words, Path(made) / "port"), folder, reports)


@contextmanager
def running(spec: GuestSpec) -> Iterator[Running]:
    """The guest with its agent there."""
    with prepared(spec) as made, machine.started(made.programs, made.folder, boot_s=BOOT_S) as guest:
        yield Running(guest, made.reports)


def _card(spec: GuestSpec, number: int, socket: Path, report: Path, log: Path) -> list[str]:
    if not spec.card.exists():
        raise LabError(f"{spec.card} is not there: make build")
    told: dict[str, object] = {
        "socket": socket,
        "chip": spec.chip,
        "memory-mib": spec.memory_mib,
        "driver": spec.pair.driver.version,
        "slot": number,
        "report": report,
        "log": log,
    }
    return [
        os.fspath(spec.card),
        *(word for name, value in told.items() for word in (f"--{name}", str(value))),
    ]


def _initramfs(spec: GuestSpec) -> bytes:
    """With the laboratory itself in it: it is small, and is as it is now."""
    if not BUSYBOX.exists():
        raise LabError(f"{BUSYBOX} is missing: install busybox-static")
    folder = packages.kernel_root(spec.pair.kernel) / "lib/modules" / spec.pair.kernel.release
    return initramfs.made(
        BUSYBOX.read_bytes(),
        kernel_modules.in_order(folder, NEEDED_BY_ROOT),
        list(_carried(spec)),
        mounts=MOUNTS,
        start=spec.start,
    )


def _carried(spec: GuestSpec) -> Iterator[tuple[str, int, bytes]]:
    pair = spec.pair
    for top in SOURCES:
        for path in sorted((REPOSITORY / top).rglob("*")):
            if path.suffix in SUFFIXES and path.is_file():
                yield (
                    f"lab/{path.relative_to(REPOSITORY)}",
                    stat.S_IMODE(path.stat().st_mode),
                    path.read_bytes(),
                )
    for name in modules.MODULES:
        built = spec.modules or modules.built(pair)
        yield f"lab/modules/{name}", 0o644, (built / name).read_bytes()
    yield f"lab/modules/{modules.REACHED}", 0o644, modules.reached(pair)
    for name in firmware.NAMES:
        yield f"lab/firmware/nvidia/{pair.driver.version}/{name}", 0o644, firmware.made(pair.driver.version)
    if spec.engine:
        yield f"lab/{ENGINE}", 0o755, spec.engine.read_bytes()
