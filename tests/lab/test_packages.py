"""A package that Debian's archive has no longer: one line, with its name and where another is chosen."""

from collections.abc import Callable
from pathlib import Path

import pytest

from lab import packages, pairs
from lab.error import LabError

# The words of apt and of mmdebstrap 1.3.5, of versions that bookworm and trixie never had.
MMDEBSTRAP = """\
I: running apt-get update...
I: downloading packages with apt...
Reading package lists...
E: Unable to locate package linux-image-6.1.0-50-amd64-unsigned
E: Couldn't find any package by glob 'linux-image-6.1.0-50-amd64-unsigned'
E: apt download failed: E: apt-get --yes install failed
E: mmdebstrap failed to run
"""
APT = "E: Version '550.163.01-2' for 'nvidia-open-kernel-dkms' was not found\n"


@pytest.mark.parametrize(
    ("program", "said", "fetch", "reason"),
    [
        (
            "mmdebstrap",
            MMDEBSTRAP,
            lambda: packages.kernel_root(pairs.LINUX_6_1),
            "E: Unable to locate package linux-image-6.1.0-50-amd64-unsigned; choose another version",
        ),
        (
            "apt-get",
            APT,
            lambda: packages.driver_sources(pairs.DRIVER_550),
            "E: Version '550.163.01-2' for 'nvidia-open-kernel-dkms' was not found; choose another version",
        ),
    ],
)
def test_package_that_has_gone_is_one_line_that_says_what_to_do(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    program: str,
    said: str,
    fetch: Callable[[], object],
    reason: str,
) -> None:
    stand_in = tmp_path / "bin" / program
    stand_in.parent.mkdir()
    stand_in.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{said}END\nexit 100\n")
    stand_in.chmod(0o755)
    monkeypatch.setenv("PATH", str(stand_in.parent), prepend=":")
    monkeypatch.setattr(packages, "LAB", tmp_path / "lab")
    with pytest.raises(LabError) as told:
        fetch()
    assert reason in str(told.value)
    assert "lab/pairs.py" in str(told.value)
    assert "\n" not in str(told.value)
    assert not list((tmp_path / "lab").glob("*/*.deb"))
