"""Pack a root folder as a one-layer image archive in Docker's format for ctr, docker and podman."""

from __future__ import annotations

import hashlib
import io
import json
import os
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO

NAME = "docker.io/library/mgpu-test:latest"
EPOCH = "1970-01-01T00:00:00Z"
ENVIRONMENT = ("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8")


def pack(
    rootfs: Path,
    archive: Path,
    *,
    name: str = NAME,
    command: Sequence[str] = ("/bin/sh",),
    environment: Sequence[str] = ENVIRONMENT,
    created_by: str = "tests/image/build.sh",
) -> None:
    """Write `archive`, an image `name` that runs `command`, from `rootfs`.

    Owners and modes are kept as they are on disk, times are set to 0.
    """
    with tempfile.TemporaryFile(dir=archive.parent) as layer, tarfile.open(archive, "w") as image:
        _write_layer(rootfs, layer)
        digest = _sha256(layer)
        config = _json(
            {
                "architecture": "amd64",
                "os": "linux",
                "created": EPOCH,
                "config": {"Env": list(environment), "Cmd": list(command), "WorkingDir": "/"},
                "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
                "history": [{"created": EPOCH, "created_by": created_by}],
            }
        )
        config_name = f"{hashlib.sha256(config).hexdigest()}.json"
        layer_name = f"{digest}/layer.tar"
        manifest = _json([{"Config": config_name, "RepoTags": [name], "Layers": [layer_name]}])
        _add(image, "manifest.json", io.BytesIO(manifest), len(manifest))
        _add(image, config_name, io.BytesIO(config), len(config))
        length = layer.seek(0, os.SEEK_END)
        layer.seek(0)
        _add(image, layer_name, layer, length)


def _write_layer(rootfs: Path, layer: IO[bytes]) -> None:
    def without_time(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.mtime = 0
        return member

    with tarfile.open(fileobj=layer, mode="w") as tar:
        for name in sorted(os.listdir(rootfs)):
            tar.add(rootfs / name, arcname=name, filter=without_time)


def _sha256(content: IO[bytes]) -> str:
    content.seek(0)
    return hashlib.file_digest(content, "sha256").hexdigest()  # type: ignore[arg-type]


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


def _add(image: tarfile.TarFile, name: str, content: IO[bytes], length: int) -> None:
    member = tarfile.TarInfo(name)
    member.size = length
    member.mode = 0o644
    image.addfile(member, content)


if __name__ == "__main__":
    pack(Path(sys.argv[1]), Path(sys.argv[2]))
