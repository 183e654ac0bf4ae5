"""A restoration beside busy online work: it waits for as long as that goes on, is not taken for one that
hangs, and holds up nothing on another card.
"""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from subprocess import DEVNULL

import pytest

from tests.support import arbiter
from tests.support.arbiter import Arbiter
from tests.support.lending import KEEPER, LENDS, OFFLINE, rounds, started
from tests.support.load import load, working
from tests.support.places import MGPU
from tests.support.programs import Programs
from tests.support.waiting import until

BUSY = ("saturate", "--kernel-us", "1000", "--queue", "64", "--seconds", "600")
# A copy that waits for nothing has 10 s and some.
LONGER_S = 14


@pytest.fixture
def mgpu(private_host: None) -> Iterator[Arbiter]:
    with arbiter.running("v100-16:2", node_config=LENDS) as running:
        yield running
        arbiter.until_empty(running)


def on(uuid: str) -> dict[str, str]:
    return {"mgpu.dev/gpus": uuid}


def test_restoration_waits_and_no_other_container_does(mgpu: Arbiter, built: Programs) -> None:
    first, second = (card["uuid"] for card in mgpu.listing()["cards"])
    with (
        started(mgpu, built, {**OFFLINE, **on(first)}, *KEEPER) as waits,
        started(mgpu, built, {**OFFLINE, **on(second)}, *KEEPER) as other,
    ):
        assert waits.program.line() == other.program.line() == "up"
        name = waits.bundle.container
        mgpu.mgpu("evict", name)
        with load(mgpu, *BUSY, annotations=on(first)) as online:
            working(online)
            argv: list[str | Path] = [MGPU, "resume", "--root", mgpu.root, name]
            with subprocess.Popen(argv, stdout=DEVNULL) as resumes:
                waits.until("restoring")
                mgpu.mgpu("evict", other.bundle.container)
                mgpu.mgpu("resume", other.bundle.container)
                assert rounds(other)
                with pytest.raises(subprocess.TimeoutExpired):
                    resumes.wait(LONGER_S)
                assert waits.reclaim == "restoring"
                online.stop()
                assert resumes.wait(60) == 0
        assert rounds(waits)
        log = (mgpu.root / "log" / "mgpud.log").read_text()
        assert "event=settled" not in log
        until(lambda: mgpu.used_bytes() == [card.used_bytes for card in mgpu.account().cards], "they agree")
