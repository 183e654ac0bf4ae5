"""QEMU's command line: a guest on TCG, so that no machine needs KVM, whose time is steady on a busy host."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

MEMORY_MIB = 3072
# Time from the ACPI timer is QEMU's clock. TCG's TSC runs ahead by minutes on a busy host: RM times out.
# There the kernel also counts too few of the timer's interrupts, and panics unless it takes them for granted.
STEADY = "clocksource=acpi_pm tsc=unstable nowatchdog no_timer_check"
# A kernel that is broken ends, and with -no-reboot QEMU does.
DYING = "oops=panic panic=-1"
QUICK = "mitigations=off nokaslr random.trust_cpu=on"
# How long a stopped card keeps QEMU waiting.
CARD_TIMEOUT_MS = 120000


@dataclass(frozen=True)
class Disk:
    """writable: what the guest writes goes to this file; else to a copy that is gone with it.

    log: where each write and each flush is written down too, in order (lab/hosts/write_log.py).
    """

    image: Path
    writable: bool = False
    log: Path | None = None


@dataclass(frozen=True)
class Guest:
    kernel: Path
    initramfs: Path
    disks: Sequence[Disk]
    cards: Sequence[Path]
    append: str = ""
    loglevel: int = 7


def command(root: Path, guest: Guest) -> list[str]:
    """root: an unpacked one with QEMU; its own loader and libraries run it, whatever this system has."""
    libraries = f"{root}/usr/lib/x86_64-linux-gnu"
    words = [f"{root}/usr/lib64/ld-linux-x86-64.so.2", "--library-path", libraries]
    words += [
        f"{root}/usr/bin/qemu-system-x86_64",
        "-L",
        f"{root}/usr/share/qemu",
        "-L",
        f"{root}/usr/share/seabios",
    ]
    words += [
        "-accel",
        "tcg,tb-size=512",
        "-cpu",
        "max,erms=off,fsrm=off",
        "-machine",
        "q35,hpet=off",
        "-smp",
        "2,sockets=2",
        "-m",
        f"{MEMORY_MIB}M",
    ]
    # The card reads and writes the guest's memory itself. A processor and half of it are a node.
    for node in range(2):
        words += ["-object", f"memory-backend-memfd,id=ram{node},size={MEMORY_MIB // 2}M,share=on"]
        words += ["-numa", f"node,nodeid={node},cpus={node},memdev=ram{node}"]
    words += ["-display", "none", "-monitor", "none", "-no-reboot", "-nic", "none"]
    words += ["-kernel", str(guest.kernel), "-initrd", str(guest.initramfs)]
    words += [
        "-append",
        f"console=ttyS0 {STEADY} {DYING} {QUICK} loglevel={guest.loglevel} {guest.append}".rstrip(),
    ]
    for disk in guest.disks:
        words += ["-drive", _drive(disk)]
    for number, card in enumerate(guest.cards, start=1):
        words += ["-device", f"pcie-root-port,id=port{number},chassis={number},slot={number}"]
        words += ["-device", json.dumps(_card(number, card))]
    return words


def _drive(disk: Disk) -> str:
    if disk.log is None:
        kept = "off" if disk.writable else "on"
        return f"file={disk.image},if=virtio,format=raw,snapshot={kept}"
    words = ["driver=blklogwrites,if=virtio", f"file.driver=file,file.filename={disk.image}"]
    return ",".join([*words, f"log.driver=file,log.filename={disk.log}"])


def _card(number: int, card: Path) -> dict[str, object]:
    return {
        "driver": "vfio-user-pci",
        "bus": f"port{number}",
        "socket": {"path": str(card), "type": "unix"},
        "x-msg-timeout": CARD_TIMEOUT_MS,
    }
