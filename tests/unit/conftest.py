"""Fixtures of the create path's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.create_path import Mgpud, remove_programs


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
