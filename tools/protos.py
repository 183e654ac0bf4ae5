"""Generate containerd_api/generated from containerd_api/protos: `protos.py [TARGET]`, here unless told.

Messages and their types alone: see containerd_api/methods.py for why there are no service stubs.
"""

from __future__ import annotations

import re
import sys
import tempfile
from importlib.resources import files
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
PROTOS = Path("containerd_api/protos")
GENERATED = Path("containerd_api/generated")


def generate(target: Path) -> None:
    """Write the modules below `target`. SystemExit with protoc's own words when it refuses."""
    from grpc_tools import protoc

    (target / GENERATED).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as made:
        options = [
            f"--proto_path={REPOSITORY}",
            f"--proto_path={files('grpc_tools') / '_proto'}",
            f"--python_out={made}",
            f"--pyi_out={made}",
        ]
        sources = sorted(str(path) for path in (REPOSITORY / PROTOS).glob("*.proto"))
        if protoc.main(["protoc", *options, *sources]) != 0:
            sys.exit("protoc failed")
        for path in sorted((Path(made) / PROTOS).iterdir()):
            (target / GENERATED / path.name).write_text(_tidied(path.read_text()))


def _tidied(text: str) -> str:
    """protoc puts modules where their sources are; and some of its lines end with blanks."""
    moved = re.sub(r"(from |')containerd_api\.protos\b", r"\1containerd_api.generated", text)
    return re.sub(r"[ \t]+$", "", moved, flags=re.MULTILINE).rstrip("\n") + "\n"


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else REPOSITORY)
