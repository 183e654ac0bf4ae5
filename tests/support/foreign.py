"""Containers with programs from PyPI in them, and a folder of tests that run those."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.arbiter import Arbiter
from tests.support.bundle import Bundle, bundle
from tests.support.places import FOREIGN_PACKAGES, REPOSITORY

CASES = REPOSITORY / "tests" / "foreign"
PACKAGES_INSIDE, CASES_INSIDE = "/foreign", "/cases"


def mount(source: Path, destination: str) -> dict[str, Any]:
    return {"destination": destination, "type": "bind", "source": str(source), "options": ["rbind", "ro"]}


@contextmanager
def foreign_bundle(
    script: str,
    *args: str,
    memory_mib: int,
    env: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
) -> Iterator[Bundle]:
    """A bundle that runs a script of tests/foreign under a cap."""
    inside = {
        "MGPU_MEMORY_MIB": str(memory_mib),
        "PYTHONPATH": PACKAGES_INSIDE,
        "PYTHONDONTWRITEBYTECODE": "1",
        **(env or {}),
    }
    mounts = [mount(FOREIGN_PACKAGES, PACKAGES_INSIDE), mount(CASES, CASES_INSIDE)]
    command = "python3", f"{CASES_INSIDE}/{script}", *args
    with bundle(*command, env=inside, mounts=mounts, annotations=annotations) as made:
        yield made


def run_foreign(mgpu: Arbiter, script: str, *args: str, memory_mib: int) -> Any:
    """The JSON document that it prints last."""
    with foreign_bundle(script, *args, memory_mib=memory_mib) as made:
        done = made.run(mgpu.runtime)
    assert done.status == 0, done
    return json.loads(done.out.splitlines()[-1])
