"""Pack root folders as layers of images, in one archive in Docker's format for ctr, docker and podman."""

import hashlib
import io
import json
import os
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

EPOCH = "1970-01-01T00:00:00Z"


@dataclass(frozen=True, kw_only=True)
class Image:
    """layers: root folders, the lowest first; images may share them. command: what it runs unless told
    otherwise.
    """

    name: str = "docker.io/library/mgpu-test:latest"
    layers: Sequence[Path]
    command: Sequence[str] = ("/bin/sh",)
    environment: Sequence[str] = (
        "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "LANG=C.UTF-8",
    )
    created_by: str = "tests/image/build.sh"


def pack(archive: Path, *images: Image) -> None:
    """Write `archive`. Owners and modes are kept as they are on disk, times are set to 0."""
    with ExitStack() as stack:
        out = stack.enter_context(tarfile.open(archive, "w"))
        digests: dict[Path, str] = {}
        manifest = []
        for image in images:
            for rootfs in image.layers:
                if rootfs not in digests:
                    layer = stack.enter_context(tempfile.TemporaryFile(dir=archive.parent))
                    _write_layer(rootfs, layer)
                    digests[rootfs] = _sha256(layer)
                    length = layer.seek(0, os.SEEK_END)
                    layer.seek(0)
                    _add(out, _layer_name(digests[rootfs]), layer, length)
            own = [digests[rootfs] for rootfs in image.layers]
            config = _config(image, own)
            config_name = f"{hashlib.sha256(config).hexdigest()}.json"
            _add(out, config_name, io.BytesIO(config), len(config))
            manifest.append(
                {
                    "Config": config_name,
                    "RepoTags": [image.name],
                    "Layers": [_layer_name(each) for each in own],
                }
            )
        text = _json(manifest)
        _add(out, "manifest.json", io.BytesIO(text), len(text))


def _config(image: Image, digests: Sequence[str]) -> bytes:
    return _json(
        {
            "architecture": "amd64",
            "os": "linux",
            "created": EPOCH,
            "config": {"Env": list(image.environment), "Cmd": list(image.command), "WorkingDir": "/"},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest in digests]},
            "history": [{"created": EPOCH, "created_by": image.created_by} for _ in digests],
        }
    )


def _layer_name(digest: str) -> str:
    return f"{digest}/layer.tar"


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


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def _add(image: tarfile.TarFile, name: str, content: IO[bytes], length: int) -> None:
    member = tarfile.TarInfo(name)
    member.size = length
    member.mode = 0o644
    image.addfile(member, content)


if __name__ == "__main__":
    pack(Path(sys.argv[2]), Image(layers=(Path(sys.argv[1]),)))
