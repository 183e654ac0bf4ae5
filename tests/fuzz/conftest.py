"""The selected fuzzers run from the beginning, beside all other tests; theirs, at the end, ask what was
found.
"""

from contextlib import ExitStack

import pytest

from tests.fuzz import targets
from tests.fuzz.beside import SECONDS, Beside, beside

_RUNNING = pytest.StashKey[Beside]()
_ENDS = pytest.StashKey[ExitStack]()


def pytest_collection_finish(session: pytest.Session) -> None:
    names = [
        str(item.callspec.params["name"])
        for item in session.items
        if isinstance(item, pytest.Function) and "fuzzers" in item.fixturenames and hasattr(item, "callspec")
    ]
    if names and not session.config.option.collectonly:
        ends = session.config.stash[_ENDS] = ExitStack()
        session.config.stash[_RUNNING] = ends.enter_context(beside(targets.FOLDER / "found", names, SECONDS))


def pytest_unconfigure(config: pytest.Config) -> None:
    if ends := config.stash.get(_ENDS, None):
        ends.close()


@pytest.fixture
def fuzzers(request: pytest.FixtureRequest) -> Beside:
    return request.config.stash[_RUNNING]
