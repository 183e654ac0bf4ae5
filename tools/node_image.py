"""Makes the images that a cluster runs: `python -m tools.node_image ARCHIVE`.

One layer with mgpu below /opt/mgpu: a Python and a libc of its own, so that the same folder serves in the
container and, copied to the node, under the node's container engine. The scheduler's image has a second
layer, with what no node needs. From what is installed here, which came from the registries alone.
"""

import re
import sys
import tempfile
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from tools import pack_image, release, requirements
from tools.portable import tree as portable

PLACE = Path("/opt/mgpu")
_EARLY = "import signal\n\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(143))\n"
# A pull is part of every node's first start.
MAX_BYTES = 130 << 20


def name(program: str = "mgpu") -> str:
    return f"docker.io/library/{program}:{release.version()}"


def make(prefix: Path, archive: Path) -> int:
    """Write `archive` from the mgpu that is installed in `prefix`. The size in bytes of what nodes pull.

    PortableError in one line.
    """
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
        root, more = Path(folder, "node"), Path(folder, "scheduler")
        tree = root / PLACE.relative_to("/")
        tree.mkdir(parents=True)
        _fill(tree, prefix)
        _move_schedulers(tree, more / PLACE.relative_to("/"))
        taken = portable.size_bytes(tree)
        if taken > MAX_BYTES:
            raise portable.PortableError(
                f"the image has {taken >> 20} MiB, and {MAX_BYTES >> 20} are allowed"
            )
        for empty in ("tmp", "host"):
            (root / empty).mkdir()
        _say(f"packing {archive}")
        pack_image.pack(
            archive,
            _image("mgpu", [root], f"{PLACE}/bin/mgpu-agent"),
            _image("mgpu-scheduler", [root, more], f"{PLACE}/bin/mgpu-scheduler"),
        )
    return taken


def _say(step: str) -> None:
    print(f"node-image: {step}", flush=True)


def _image(program: str, layers: Sequence[Path], command: str) -> pack_image.Image:
    return pack_image.Image(
        name=name(program),
        layers=layers,
        command=(command, "--help"),
        environment=(f"PATH={PLACE}/bin",),
        created_by="make node-image",
    )


def _move_schedulers(tree: Path, more: Path) -> None:
    """Moves the packages that only the scheduler needs from `tree` to `more`."""
    moved = [Path("bin/mgpu-scheduler")]
    for requirement in requirements.requirements(["scheduler"]):
        found = metadata.distribution(re.split(r"[^\w.-]", requirement)[0]).files or []
        inside = {file.parts[0] for file in found if file.parts[0] != ".."}
        moved += [Path("lib", portable.VERSION, "site-packages", top) for top in sorted(inside)]
    for path in moved:
        (more / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).rename(more / path)


def _fill(tree: Path, prefix: Path) -> None:
    _say("a Python and its packages")
    site = portable.python(tree, requirements.requirements(("run", "cluster", "scheduler")))
    # Where Debian's Python looks.
    (tree / "lib" / "python3").mkdir()
    (tree / "lib" / "python3" / "dist-packages").symlink_to(f"../{portable.VERSION}/site-packages")
    _say("mgpu, and the libraries that all of it needs (ten seconds)")
    portable.mgpu(tree, site, prefix, launcher=_launcher)
    sim = tree / "lib" / "mgpu" / "sim"
    portable.bind(tree, PLACE, own=prefix, foreign=lambda path: path.is_relative_to(sim))


def _launcher(_name: str, module: str, attr: str) -> str:
    # A container's first program ends by SIGTERM only if it handles it, and its own handler comes late.
    early = "" if module.startswith(("mgpu_cli", "native_sched")) else _EARLY
    return f"#!{PLACE}/bin/python3\nimport sys\n{early}\nfrom {module} import {attr}\n\nsys.exit({attr}())\n"


if __name__ == "__main__":
    try:
        print(f"{name()}: {make(Path(sys.prefix), Path(sys.argv[1]).absolute()) / 2**20:.0f} MiB")
    except portable.PortableError as error:
        sys.exit(f"node-image: {error}")
