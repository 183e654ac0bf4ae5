"""The facts of all known drivers once more, from a clone of NVIDIA's repository."""

import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from tools.abi.from_tinygrad import Module
from tools.abi.measure import measure
from tools.abi.problem import Problem
from tools.abi.release import Release
from tools.abi.store import Store
from tools.abi.tree import HeaderTree

TAG = "github.com/NVIDIA/open-gpu-kernel-modules, tag "
# What the facts are made of; a whole tag is twenty times as much.
NEEDED = (
    "src/common/sdk/nvidia/inc",
    "src/nvidia/generated",
    "src/nvidia/arch/nvalloc/unix/include",
    "src/nvidia/inc/kernel/rmapi",
    "src/nvidia/src/kernel/rmapi",
    "kernel-open/nvidia-uvm",
    "kernel-open/common/inc",
    "version.mk",
)


@contextmanager
def tag(clone: Path, name: str) -> Iterator[HeaderTree]:
    """A tag's headers, while the block runs. Problem: the clone has no such tag."""
    with tempfile.TemporaryDirectory(prefix="mgpu-abi-") as folder:
        git = ["git", "-c", "safe.directory=*", "-C", str(clone), "archive", name, "--", *NEEDED]
        done = subprocess.run(git, capture_output=True, check=False)
        if done.returncode != 0:
            raise Problem(
                f"{clone}: tag {name}: {done.stderr.decode(errors='replace').strip().splitlines()[-1]}"
            )
        subprocess.run(["tar", "-x", "-C", folder], input=done.stdout, check=True)
        yield HeaderTree(Path(folder))


def rebuilt(known: Store, clone: Path, tinygrad: Path | None) -> Iterator[Release]:
    """Every known release, measured anew where a tag says it, or the tinygrad that is unpacked in a
    folder."""
    like: Release | None = None
    for release in known.releases.values():
        module = re.search(r", (nv_\d+)\.py", release.source)
        if release.source.startswith(TAG):
            with tag(clone, release.source.removeprefix(TAG)) as tree:
                like = measure(tree, release.source)
                yield like
        elif module and tinygrad and like:
            yield replace(Module(tinygrad, module[1]).release(release.version, like), source=release.source)
        else:
            yield release
