"""Generate PACKAGE/generated from PACKAGE/protos: `protos.py [TARGET]`, here unless told.

Messages and their types alone: see containerd_api/methods.py for why there are no service stubs.
"""

import re
import sys
import tempfile
from importlib.resources import files
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
PACKAGES = (Path("containerd_api"), Path("cluster/kubelet"))


def generate(target: Path, package: Path) -> None:
    """Write the package's modules below `target`. SystemExit with protoc's own words when it refuses."""
    from grpc_tools import protoc

    protos, generated = package / "protos", package / "generated"
    (target / generated).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as made:
        options = [
            f"--proto_path={REPOSITORY}",
            f"--proto_path={files('grpc_tools') / '_proto'}",
            f"--python_out={made}",
            f"--pyi_out={made}",
        ]
        sources = sorted(str(path) for path in (REPOSITORY / protos).glob("*.proto"))
        if protoc.main(["protoc", *options, *sources]) != 0:
            sys.exit("protoc failed")
        for path in sorted((Path(made) / protos).iterdir()):
            (target / generated / path.name).write_text(_tidied(path.read_text(), package))


def _tidied(text: str, package: Path) -> str:
    """protoc puts modules where their sources are; and some of its lines end with blanks."""
    name = ".".join(package.parts)
    moved = re.sub(rf"(from |'){re.escape(name)}\.protos\b", rf"\1{name}.generated", text)
    return re.sub(r"[ \t]+$", "", moved, flags=re.MULTILINE).rstrip("\n") + "\n"


if __name__ == "__main__":
    for each in PACKAGES:
        generate(Path(sys.argv[1]) if len(sys.argv) > 1 else REPOSITORY, each)
