"""Fixtures of several tests here."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mgpu_cli import names
from native_sched.daemon.node.config import NodeConfig
from tests.create_path import Mgpud, remove_programs
from tests.unit.arbiter_support import World
from tests.unit.cli_support import FakeMgpud, fake_mgpud


@pytest.fixture(autouse=True)
def no_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine's Docker and podman are not asked for names."""
    for engine in ("_docker", "_podman"):
        monkeypatch.setattr(names, engine, dict)


@pytest.fixture
def plain_prefix(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """The installation has a path that install takes, wherever this clone lies."""
    prefix = tmp_path_factory.mktemp("prefix") / "mgpu"
    prefix.symlink_to(sys.prefix)
    monkeypatch.setattr(sys, "prefix", str(prefix))


@pytest.fixture
def mgpud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeMgpud]:
    """What the commands ask, in a state directory of the test's own."""
    monkeypatch.setenv("MGPU_ROOT", str(tmp_path))
    with fake_mgpud(tmp_path / "mgpud.sock") as fake:
        yield fake


@pytest.fixture(scope="module")
def create_path_programs() -> Iterator[None]:
    """What a module had compiled is removed after it."""
    yield
    remove_programs()


@pytest.fixture(params=["python", "mgpud"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Who decides and rewrites: both say and write the same."""
    chosen: str = request.param
    monkeypatch.setattr(Mgpud, "prepares", chosen == "mgpud")
    return chosen


@pytest.fixture
def world() -> Iterator[World]:
    """What mgpud decides by, on cards of no driver."""
    made = World(NodeConfig())
    yield made
    made.close()
