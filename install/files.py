"""Reading the host's configuration files, with one clear line for whatever stands in the way."""

import os
from pathlib import Path

from oci_specs.refusal import Refusal

# More is no configuration, and an endless file (/dev/zero behind a link) must end.
CONFIG_MAX_BYTES = 4 << 20


def unreadable(path: Path, why: str) -> Refusal:
    return Refusal("bad-config", f"{path}: {why}", "put it right; nothing was changed")


def read(path: Path) -> bytes | None:
    """A file's bytes, through symbolic links; None if there is none."""
    # A pipe would be waited on for ever.
    if path.exists() and not path.is_file():
        raise unreadable(path, "it is not a plain file")
    try:
        with path.open("rb") as file:
            content = file.read(CONFIG_MAX_BYTES + 1)
    except FileNotFoundError:
        if path.is_symlink():
            raise unreadable(path, "it is a symbolic link that leads nowhere") from None
        return None
    except OSError as error:
        raise unreadable(path, error.strerror or str(error)) from error
    if len(content) > CONFIG_MAX_BYTES:
        raise unreadable(path, f"it has more than {CONFIG_MAX_BYTES} bytes")
    return content


def read_text(path: Path) -> str | None:
    content = read(path)
    return None if content is None else text_of(content, path)


def text_of(content: bytes, path: Path) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise unreadable(path, f"it is not UTF-8 at byte {error.start}") from error


def read_link(path: Path) -> bytes | None:
    """Where a symbolic link leads; None if there is nothing; Refusal if it is something else."""
    try:
        return os.fsencode(os.readlink(path))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise unreadable(path, "it is no symbolic link, and mgpu install makes one there") from error


def final(path: Path) -> Path:
    """Where writing has to happen: what a symbolic link leads to, so that the link stays one."""
    try:
        return path.resolve()
    except (OSError, RuntimeError) as error:
        raise unreadable(path, "symbolic links lead round in a circle") from error
