"""Evicted data is the container's own host memory: its memory cgroup is charged for it, and one whose limit
leaves no room is not evicted.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support import arbiter
from tests.support.arbiter import Arbiter
from tests.support.bundle import bundle
from tests.support.lending import KEEPER, LENDS, LENT_MIB, OFFLINE, Running, rounds, running, taker, turn
from tests.support.programs import Programs

MIB = 1 << 20
CGROUPS = Path("/sys/fs/cgroup")
# Of the memory controller's own hierarchy, or of the unified one: what is charged without pages of files.
FOLDER, CHARGED = (CGROUPS / "memory", "total_rss") if (CGROUPS / "memory").is_dir() else (CGROUPS, "anon")


@pytest.fixture
def mgpu(private_host: None) -> Iterator[Arbiter]:
    with arbiter.running("v100-16:1", node_config=LENDS) as running:
        yield running
        arbiter.until_empty(running)


@contextmanager
def limited(mgpu: Arbiter, built: Programs, limit_mib: int) -> Iterator[Running]:
    def limit(config: Any) -> None:
        config["linux"].setdefault("resources", {})["memory"] = {"limit": limit_mib * MIB}

    with bundle(*KEEPER, annotations=OFFLINE, mounts=[built.oci_mount]) as made:
        made.edit(limit)
        with running(mgpu, made) as one:
            assert one.program.line() == "up"
            yield one


def charged(made: Running) -> int:
    found = (FOLDER / made.bundle.container / "memory.stat").read_text().split()
    return int(found[found.index(CHARGED) + 1])


def test_containers_cgroup_is_charged_for_its_evicted_data(mgpu: Arbiter, built: Programs) -> None:
    with limited(mgpu, built, 1024) as offline:
        before = charged(offline)
        mgpu.mgpu("evict", offline.bundle.container)
        grown = charged(offline) - before
        assert LENT_MIB * MIB <= grown < (LENT_MIB + 4) * MIB
        mgpu.mgpu("resume", offline.bundle.container)
        assert charged(offline) < before + 4 * MIB
        assert rounds(offline)


def test_one_whose_limit_leaves_no_room_is_said_and_skipped(mgpu: Arbiter, built: Programs) -> None:
    with limited(mgpu, built, 224) as small, limited(mgpu, built, 1024) as large:
        # The small one has run for longest, so it is looked at first.
        fits = int(small.row["cards"][0]["used_bytes"]) // MIB
        assert fits > 224
        with taker(mgpu, built, 16160 - 2 * fits - 150) as online:
            turn(online)
            large.until("evicted")
            assert small.reclaim == "running"
            assert "MiB of host memory left to it" in small.row["reclaim"]["not_moved"]
            assert mgpu.mgpu("describe", small.bundle.container).count("do not fit the") == 1
            assert rounds(small)
            turn(online)
        large.until("running")
        assert rounds(large)
