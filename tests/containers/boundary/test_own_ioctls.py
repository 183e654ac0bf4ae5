"""Linux's own ioctls through the filter of a container with a grant: answered as without it."""

from pathlib import Path

from tests.support.arbiter import Arbiter
from tests.support.lasting import lasting_mgpu
from tests.support.programs import Programs

lasting, mgpu = lasting_mgpu()


def said(runtime: str | Path, built: Programs, env: dict[str, str]) -> list[str]:
    with built.bundle("own_ioctls", env=env) as made:
        return made.output(runtime).splitlines()


def test_answered_as_without_the_filter(mgpu: Arbiter, built: Programs) -> None:
    plain = said("runc", built, {})
    granted = said(mgpu.runtime, built, {"MGPU_MEMORY_MIB": "1024"})
    assert granted == plain
    succeeded = [line for line in plain if " 0 0 " in line]
    assert len(succeeded) > 12, plain
