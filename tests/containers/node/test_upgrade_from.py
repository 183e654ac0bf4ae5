"""Containers that a build of before serves are served on by this one, installed in its place."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support import arbiter, tree
from tests.support.commands import run
from tests.support.places import REPOSITORY
from tests.support.programs import Programs
from tests.support.steady import LONGEST_S, mgpud_killed, steady
from tests.support.waiting import until

# The oldest build to be taken over. A format that this one cannot read moves it, with a line in NEWS.md.
BASE = "468ab30752cb"
BUILD_S = 600.0


def built_in(folder: Path) -> Path:
    """The command of what lies in the folder."""
    run("make", "build", cwd=folder, timeout_s=BUILD_S)
    return folder / "build" / "venv" / "bin" / "mgpu"


@pytest.mark.timeout(1500)
def test_containers_of_the_base_go_on(private_host: None, built: Programs, tmp_path: Path) -> None:
    if not tree.has(BASE):
        pytest.skip("no history from there: a source archive or a shallow clone")
    folder = tmp_path / "tree"
    run(*tree.GIT, "clone", "--quiet", "--shared", "--no-checkout", REPOSITORY, folder)
    run(*tree.GIT, "-C", folder, "checkout", "--quiet", BASE)
    before = built_in(folder)
    with arbiter.running("v100-16:1", program=before) as up, ExitStack() as stack:
        containers = [stack.enter_context(steady(up, built)) for _ in range(3)]
        run(*tree.GIT, "-C", folder, "rm", "--quiet", "-r", ".")
        tree.copy_to(folder)
        assert built_in(folder) == before
        assert all(one.goes_on() < LONGEST_S for one in containers), "installed"
        assert "it serves 3 containers" in up.mgpu("upgrade")
        assert all(one.goes_on() < LONGEST_S for one in containers), "upgraded"
        with steady(up, built) as another:
            another.goes_on()
        mgpud_killed(up)
        assert all(one.goes_on() < LONGEST_S for one in containers), "killed"
        stack.close()
        until(lambda: up.containers() == [], "the grants are back")
        until(lambda: up.used_bytes() == [0], "so is memory")
