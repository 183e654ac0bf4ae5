"""`make count`: how large and how entangled the sources are; `python -m tools.count COMMIT` counts a commit.

A commit's sources are formatted as ours are now, so that the figures of two trees compare.
"""

import io
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from tools.count.figures import Figures, figures

REPOSITORY = Path(__file__).resolve().parents[2]
BUILD = REPOSITORY / "build" / "meson"
GLOSSARY = REPOSITORY / "docs" / "glossary.md"
_GIT = ("git", "-c", f"safe.directory={REPOSITORY}", "-C", str(REPOSITORY))


def of_work_tree() -> Figures:
    listed = subprocess.check_output(
        [*_GIT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"], text=True
    )
    names = [name for name in listed.split("\0") if (REPOSITORY / name).is_file()]
    return figures(REPOSITORY, names, GLOSSARY.read_text(), BUILD if BUILD.exists() else None)


def of_commit(commit: str) -> Figures:
    archive = subprocess.check_output([*_GIT, "archive", commit])
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            tar.extractall(base)
        names = [path.relative_to(base).as_posix() for path in base.rglob("*") if path.is_file()]
        _format(base, [name for name in names if name.endswith((".c", ".h"))])
        return figures(base, names, GLOSSARY.read_text())


def _format(base: Path, c_names: list[str]) -> None:
    style = f"--style=file:{REPOSITORY}/.clang-format"
    subprocess.run(["clang-format", style, "-i", *c_names], cwd=base, check=True)
    config = f"--config={REPOSITORY}/pyproject.toml"
    subprocess.run(["ruff", "format", "--quiet", "--no-cache", config, "."], cwd=base, check=True)


def main(arguments: list[str]) -> None:
    counted = of_commit(arguments[0]) if arguments else of_work_tree()
    sys.stdout.write(counted.text())


if __name__ == "__main__":
    main(sys.argv[1:])
