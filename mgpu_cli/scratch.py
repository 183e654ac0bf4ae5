"""A writable view of a root file system that leaves the original as it is."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from pathlib import Path

from mgpu_cli import kernel
from oci_specs.refusal import Refusal, quoted


@contextmanager
def bundle_over(rootfs: Path) -> Iterator[Path]:
    """A fresh bundle directory whose "rootfs" shows the directory rootfs; writes to it stay in memory.

    The mounts are made in a mount namespace of this process's own, so that even a kill leaves none behind:
    only children of this process see them.
    """
    directory = Path(tempfile.mkdtemp(prefix="mgpu-run-"))
    try:
        try:
            kernel.private_mounts()
            _overlay(rootfs, directory)
        except OSError as error:
            raise Refusal(
                "no-overlay",
                f"cannot lay a writable layer over {quoted(rootfs)}: {error.strerror}",
                "run as root, on a kernel with overlayfs",
            ) from error
        yield directory
    finally:
        remove(directory)


def remove(directory: Path) -> None:
    """Take a bundle directory away with its mounts; from the mount namespace that they were made in."""
    for name in ("rootfs", "layers/lower", "layers"):
        kernel.unmount(directory / name)
    shutil.rmtree(directory)


def _overlay(rootfs: Path, directory: Path) -> None:
    layers, shown = directory / "layers", directory / "rootfs"
    layers.mkdir()
    shown.mkdir()
    # On tmpfs, because overlayfs takes no upper directory that lies on an overlayfs itself, as /tmp may.
    kernel.mount("tmpfs", layers, "tmpfs", flags=kernel.MS_NODEV | kernel.MS_NOSUID, data="mode=0700")
    for name in ("lower", "upper", "work"):
        (layers / name).mkdir()
    (layers / "upper").chmod(rootfs.stat().st_mode & 0o7777)
    kernel.mount(str(rootfs), layers / "lower", flags=kernel.MS_BIND)
    # Relative names: a comma or colon in the directory's own name would end the option.
    with chdir(layers):
        kernel.mount("overlay", shown, "overlay", data="lowerdir=lower,upperdir=upper,workdir=work")
