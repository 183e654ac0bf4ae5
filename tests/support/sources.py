"""The sources of a program or library, as its meson.build lists them."""

import re
from pathlib import Path

from tests.support.places import REPOSITORY


def listed(folder: Path, name: str) -> list[Path]:
    """Of `name = files(...)` in the folder's meson.build."""
    build = (folder / "meson.build").read_text()
    found = re.search(rf"^{name} = files\(([^)]*)\)", build, re.MULTILINE)
    assert found, f"{folder}/meson.build has no {name}"
    return [folder / source for source in re.findall(r"'([^']+)'", found[1])]


def engine_sources() -> list[Path]:
    native = REPOSITORY / "native_sched"
    return listed(native, "engine_sources") + listed(native / "nvidia", "nvidia_sources")
