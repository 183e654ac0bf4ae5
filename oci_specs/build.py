"""Which build of mgpu this is, and from which one a running program comes.

Native programs hold it as a text that begins with _MARK (base/build.h.in), which is found in a running one
even when its file was replaced.
"""

import functools
import os
import re
from pathlib import Path

from oci_specs import paths
from oci_specs.refusal import Refusal

_MARK = re.compile(rb"mgpu-build ([^\0]+)\0")
_LIBEXEC = Path("libexec") / "mgpu"
_DELETED = " (deleted)"
UNKNOWN = "unknown"


@functools.cache
def version() -> str:
    # It takes as long to load as a command needs for all else.
    import importlib.metadata

    try:
        return importlib.metadata.version("mgpu")
    except importlib.metadata.PackageNotFoundError:
        return "not installed as a package"


def build() -> str:
    """Version and commit of what is installed, "0.1.0 (1a2b3c4d5e6f)"; "-dirty" with changes besides."""
    try:
        return _marked(paths.libexec("mgpu-holder"))
    except (OSError, Refusal):
        return f"{version()} ({UNKNOWN} commit)"


def commit_of(built: str) -> str:
    """Of what build() gives."""
    return built.partition(" (")[2].removesuffix(")")


def of_process(pid: int) -> tuple[str, Path]:
    """The build of a native program that runs, and the prefix that it was started from; UNKNOWN of a process
    that has ended, or is another user's.
    """
    exe = f"/proc/{pid}/exe"
    try:
        found, folder = _marked(exe), Path(os.readlink(exe).removesuffix(_DELETED)).parent
    except OSError:
        return UNKNOWN, Path(UNKNOWN)
    return found, folder.parent.parent if folder.match(str(_LIBEXEC)) else folder


def _marked(program: str) -> str:
    found = _MARK.search(Path(program).read_bytes())
    return found[1].decode() if found else UNKNOWN
