"""The one version number of mgpu: meson.build has it, and pyproject.toml, NEWS.md and the manifests
follow."""

import re
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]


def version() -> str:
    found = re.search(r"^  version: '([^']+)',$", (REPOSITORY / "meson.build").read_text(), re.MULTILINE)
    assert found, "meson.build has no version"
    return found[1]


if __name__ == "__main__":
    print(version())
