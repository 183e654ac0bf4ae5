"""An initramfs: what finds the guest's root. A cpio archive (buffer-format.rst)."""

import os
import stat
from collections.abc import Iterable
from pathlib import PurePosixPath

_INIT = """\
#!/bin/busybox sh
export PATH=/bin
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
for module in {modules}; do insmod /modules/$module.ko; done
{mounts}
umount /proc /sys
mount --move /dev /root/dev
exec switch_root /root {start}
"""


def archive(entries: Iterable[tuple[str, int, bytes]]) -> bytes:
    """entries: path, mode with the file's type, content; folders before what is in them."""
    out = bytearray()
    for number, (path, mode, held) in enumerate([*entries, ("TRAILER!!!", 0, b"")], start=1):
        name = path.encode() + b"\0"
        words = (number, mode, 0, 0, 1, 0, len(held), 0, 0, 0, 0, len(name), 0)
        out += b"070701" + b"".join(b"%08X" % word for word in words) + name
        out += bytes(-len(out) % 4) + held
        out += bytes(-len(out) % 4)
    return bytes(out)


def made(
    busybox: bytes,
    modules: Iterable[tuple[str, bytes]],
    files: Iterable[tuple[str, int, bytes]],
    *,
    mounts: str,
    start: str,
) -> bytes:
    """files: what else is in it: path, mode, content. mounts: shell lines that mount the guest's root on
    /root. start: what is executed there.
    """
    loaded = list(modules)
    init = _INIT.format(modules=" ".join(name for name, _ in loaded), mounts=mounts, start=start)
    own = [
        ("bin/busybox", 0o755, busybox),
        ("init", 0o755, init.encode()),
        *((f"modules/{name}.ko", 0o644, held) for name, held in loaded),
        *files,
    ]
    folders = {"dev", "proc", "sys", "root"}
    for path, _, _ in own:
        folders |= {os.fspath(above) for above in PurePosixPath(path).parents} - {"."}
    return archive(
        [
            *((folder, stat.S_IFDIR | 0o755, b"") for folder in sorted(folders)),
            *((path, stat.S_IFREG | mode, held) for path, mode, held in own),
        ]
    )
