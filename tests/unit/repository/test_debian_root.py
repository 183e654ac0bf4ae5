"""Roots of other Debian releases: what is asked of mmdebstrap."""

from pathlib import Path

import pytest

from tools import debian_root
from tools.debian_root import DebianRootError

STAND_IN = """\
#!/bin/sh
for word; do case $word in */trixie.new) folder=$word;; esac; done
[ -n "$folder" ] || { echo "E: no such release" >&2; exit 1; }
mkdir "$folder" && printf '%s\\n' "$@" >"$folder/words"
"""


@pytest.fixture
def mmdebstrap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "mmdebstrap"
    program.parent.mkdir()
    program.write_text(STAND_IN)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")


@pytest.mark.usefixtures("mmdebstrap")
def test_replaces_what_is_in_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "trixie"
    folder.mkdir()
    (folder / "old").touch()
    debian_root.make("trixie", folder, ["runc", "crun"])
    assert [path.name for path in folder.iterdir()] == ["words"]
    words = (folder / "words").read_text().splitlines()
    assert {"--variant=extract", "--include=runc,crun", "trixie"} <= set(words)


@pytest.mark.usefixtures("mmdebstrap")
def test_failure_says_what_mmdebstrap_said_and_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(DebianRootError, match="E: no such release"):
        debian_root.make("buzz", tmp_path / "buzz", ["runc"])
    assert [path.name for path in tmp_path.iterdir()] == ["bin"]
