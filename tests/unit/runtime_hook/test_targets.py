"""What a runtime can make in a root for a container in a user namespace."""

import os
from pathlib import Path
from typing import Any

import pytest

from oci_specs.refusal import Refusal
from runtime_hook import targets

IDS = [{"containerID": 0, "hostID": 200000, "size": 65536}]
INSIDE = 200000


def check(root: Path, target: str, **changed: Any) -> None:
    linux = {"namespaces": [{"type": "user"}], "uidMappings": IDS, "gidMappings": IDS, **changed}
    spec = {"root": {"path": root.name}, "linux": linux, "mounts": [{"destination": "/dev"}]}
    targets.check(spec, [{"destination": target}], str(root.parent))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "root"
    (made / "usr" / "lib").mkdir(parents=True)
    return made


def test_what_is_there_or_can_be_made_is_taken(root: Path) -> None:
    (root / "usr" / "lib" / "there.so").touch()
    (root / "lib").symlink_to("/usr/lib")
    check(root, "/usr/lib/there.so")
    check(root, "/lib/there.so")
    check(root, "/dev/nvidia0")
    check(root, "/usr/lib/new.so", namespaces=[])
    check(root, "/usr/lib/new.so", uidMappings=[])
    os.chown(root / "usr" / "lib", INSIDE, INSIDE)
    check(root, "/lib/new.so")
    check(root, "/usr/lib/deep/new.so")


@pytest.mark.parametrize("target", ["/usr/lib/new.so", "/lib/new.so", "/lib/../lib/deep/new.so", "/opt/new"])
def test_what_its_root_may_not_make_is_refused(root: Path, target: str) -> None:
    (root / "lib").symlink_to("/usr/lib")
    with pytest.raises(Refusal, match="root user, 200000 on the host, may not make it there"):
        check(root, target)


@pytest.mark.parametrize(
    ("mode", "owner", "group", "may"),
    [
        (0o777, 0, 0, True),
        (0o755, INSIDE, INSIDE, True),
        (0o755, INSIDE, 0, True),
        (0o555, INSIDE, 0, False),
        (0o555, INSIDE, INSIDE, True),
        (0o775, 0, INSIDE, True),
        (0o775, 0, INSIDE + 1, False),
    ],
)
def test_capabilities_count_where_both_ids_are_its_own(
    root: Path, mode: int, owner: int, group: int, may: bool
) -> None:
    folder = root / "usr" / "lib"
    os.chown(folder, owner, group)
    folder.chmod(mode)
    if may:
        check(root, "/usr/lib/new.so")
    else:
        with pytest.raises(Refusal):
            check(root, "/usr/lib/new.so")


def test_root_that_is_not_there_is_the_runtimes(tmp_path: Path) -> None:
    check(tmp_path / "none", "/usr/lib/new.so")


def test_links_that_lead_round_are_the_runtimes(root: Path) -> None:
    (root / "round").symlink_to("round")
    check(root, "/round/new.so")
