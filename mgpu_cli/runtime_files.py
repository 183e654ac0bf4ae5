"""What makes a state directory usable by an engine: runtime.conf, and a mgpu-runtime that reads it."""

import importlib.util
import os
import shutil
import sys
from pathlib import Path

from mgpu_cli.state import StateDir
from oci_specs import paths
from oci_specs.refusal import Refusal, quoted

# BINPRM_BUF_SIZE of linux/binfmts.h is 256: the kernel drops the rest of a longer first line without a word.
SHEBANG_MAX_BYTES = 255
# CRI-O's own packages bring runc and crun, and leave PATH to others.
CRIOS_FOLDER = "/usr/libexec/crio"


def write(state: StateDir, runtime: str) -> None:
    """Write runtime.conf and bin/mgpu-runtime, for the OCI runtime below: "runc", "crun" or a path."""
    line = shebang(_interpreter(Path(paths.libexec("mgpu-runtime")), state), state)
    _replace(state.runtime_conf, conf(state, runtime).encode(), 0o600)
    _replace(state.runtime, line, 0o700)


def conf(state: StateDir, runtime: str) -> str:
    """The text of runtime.conf; Refusal when the OCI runtime below is not there."""
    values = {
        "runtime": _found(runtime),
        "socket": str(state.control),
        "seccomp_socket": str(state.seccomp),
        "hook": paths.libexec("mgpu-hook"),
        "python": sys.executable,
        "main": _module_file("runtime_hook.main"),
    }
    return "".join(f'{key} = "{value}"\n' for key, value in values.items())


def _interpreter(launcher: Path, state: StateDir) -> str:
    """The launcher, or a link to it where its own path has a space."""
    if not _has_space(str(launcher)):
        return str(launcher)
    link = state.runtime.with_name("launcher")
    fresh = link.with_name("launcher.new")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(launcher)
    fresh.replace(link)
    return str(link)


def _has_space(path: str) -> bool:
    return any(c.isspace() for c in path)


def shebang(launcher: str, state: StateDir) -> bytes:
    """The script's only line. The kernel splits it at the first space: the launcher's path may have none."""
    line = os.fsencode(f"#!{launcher} --mgpu-config={state.runtime_conf}\n")
    if _has_space(launcher):
        raise Refusal(
            "launcher-path",
            f"a script's interpreter can have no space, as in {quoted(launcher)}",
            "choose a state directory without spaces with --root, or install mgpu below such a path",
        )
    if len(line) > SHEBANG_MAX_BYTES:
        raise Refusal(
            "state-dir",
            f"the state directory {quoted(state.path)} makes the first line of {state.runtime.name} "
            f"{len(line)} bytes long, and the kernel reads {SHEBANG_MAX_BYTES}",
            "choose a shorter one with --root",
        )
    return line


def _found(runtime: str) -> str:
    path = shutil.which(runtime) or shutil.which(runtime, path=CRIOS_FOLDER)
    if path is None:
        raise Refusal(
            "no-runtime",
            f"the OCI runtime {quoted(runtime)} is not installed",
            "install it, or name one with --runtime",
        )
    return str(Path(path).absolute())


def _module_file(module: str) -> str:
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise Refusal("not-installed", f"the Python module {module} is not installed", "install mgpu again")
    return spec.origin


def _replace(path: Path, content: bytes, mode: int) -> None:
    # By rename: an engine that starts a container meanwhile reads the old file or the new one, whole.
    fresh = path.with_name(path.name + ".new")
    fresh.write_bytes(content)
    fresh.chmod(mode)
    fresh.rename(path)
