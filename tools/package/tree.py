"""mgpu as a folder that runs wherever it lies, on a Python of the machine's: what all packages hold.

It is a venv whose programs look for their Python beside them, so nothing in it names its own place. The C
programs need the libc of the machine that they are built on, or a later one.
"""

import subprocess
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from tools import requirements
from tools.portable import tree as portable

# Of other Pythons than this one only what is built already is taken; these are the names that wheels have.
_PLATFORMS = ("manylinux_2_34_x86_64", "manylinux_2_28_x86_64", "manylinux2014_x86_64")
# A shell reads its first lines, and Python the rest behind a string.
_LAUNCHER = """#!/bin/sh
''':'
python=$(dirname "$(readlink -f "$0")")/python3
[ -x "$python" ] || {{
    echo "{name}: Python {version} is needed, and not at $(readlink "$python"); link $python to it" >&2
    exit 1
}}
exec "$python" -I "$0" "$@"
'''
import sys

from {module} import {attr}

sys.argv[0] = "{name}"
sys.exit({attr}())
"""


def below(folder: Path, version: str) -> Path:
    """mgpu for that version of Python, such as 3.13, made in `folder` unless it is there.

    PortableError in one line.
    """
    tree = folder / version
    if not tree.exists():
        _make(tree, version)
    return tree


def of_cluster(folder: Path, version: str) -> Path:
    """What a cluster's programs have besides, as `below`."""
    tree = folder / f"{version}-cluster"
    if not tree.exists():
        _make_cluster(tree, below(folder, version), version)
    return tree


def _site(tree: Path, version: str) -> Path:
    return tree / "lib" / f"python{version}" / "site-packages"


def _make(tree: Path, version: str) -> None:
    """From the mgpu that is installed here."""
    site = _site(tree, version)
    site.mkdir(parents=True)
    _packages(site, version, list(requirements.requirements(["run"])))

    def launcher(name: str, module: str, attr: str) -> str | None:
        if module.startswith("cluster."):
            return None
        return _LAUNCHER.format(name=name, module=module, attr=attr, version=version)

    portable.mgpu(tree, site, Path(sys.prefix), launcher=launcher)
    portable.run("rm", "-r", site / "cluster")
    python = tree / "bin" / "python3"
    python.symlink_to(f"/usr/bin/python{version}")
    (tree / "pyvenv.cfg").write_text(
        f"home = /usr/bin\ninclude-system-site-packages = false\nversion = {version}\n"
    )
    for path in (tree / "lib" / "mgpu").rglob("*.so*"):
        portable.run("strip", "--strip-unneeded", path)
    for path in (tree / "libexec" / "mgpu").iterdir():
        if path.is_file() and not path.is_symlink() and path.read_bytes()[:4] == b"\x7fELF":
            portable.run("strip", "--strip-unneeded", path)


def _make_cluster(tree: Path, node: Path, version: str) -> None:
    site, held = _site(tree, version), _site(node, version)
    site.mkdir(parents=True)
    # What the node has already stays as it is.
    there = tree / "constraints.txt"
    found = metadata.distributions(path=[str(held)])
    there.write_text("".join(f"{each.name}=={each.version}\n" for each in found if each.name != "mgpu"))
    needs = requirements.requirements(["cluster", "scheduler"])
    _packages(site, version, ["--constraint", str(there), *needs])
    there.unlink()
    for path in [
        path for path in site.rglob("*") if path.is_file() and (held / path.relative_to(site)).exists()
    ]:
        path.unlink()
    installed = metadata.distribution("mgpu")
    for file in installed.files or []:
        if file.parts[0] == "cluster" and "__pycache__" not in file.parts:
            portable.copy(Path(str(file.locate())), site / Path(file))
    (tree / "bin").mkdir()
    for script in installed.entry_points.select(group="console_scripts"):
        if script.module.startswith("cluster."):
            program = tree / "bin" / script.name
            program.write_text(
                _LAUNCHER.format(name=script.name, module=script.module, attr=script.attr, version=version)
            )
            program.chmod(0o755)


def _packages(site: Path, version: str, wanted: Sequence[str]) -> None:
    words = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(site), "--no-compile"]
    words += ["--python-version", version, "--implementation", "cp", "--only-binary", ":all:"]
    for platform in _PLATFORMS:
        words += ["--platform", platform]
    # It also warns of what it believes to be in the way here; --target is a folder of its own.
    done = subprocess.run([*words, *wanted], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise portable.PortableError(f"no packages for Python {version}: {done.stderr.strip()}")
    for leftover in ("bin", "share"):
        if (site / leftover).is_dir():
            portable.run("rm", "-r", site / leftover)
