"""Tenants that try to make the ledger lose count: by races between the listeners of one container, by handles
that come again, by killing processes in the middle of calls. The card's own account is the judge.
"""

import os
import random
import signal
import time
from contextlib import suppress

import pytest

from tests.support.arbiter import Arbiter
from tests.support.bundle import bundle
from tests.support.lasting import lasting_mgpu
from tests.support.programs import Programs, inside
from tests.support.started import foreground
from tests.support.waiting import until

MIB = 1 << 20
ENV = {"MGPU_MEMORY_MIB": "2048", "MGPU_GPUS": "2"}
KILLED = 150


lasting, mgpu = lasting_mgpu()


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_calls_by_two_listeners_on_shared_files_and_handles(
    mgpu: Arbiter, built: Programs, seed: int
) -> None:
    seconds, processes = "3", "3"
    command = [inside("storm"), seconds, str(seed), processes]
    with bundle(*command, env=ENV, mounts=[built.oci_mount]) as made:
        with made.running(mgpu.runtime) as first:
            assert first.line() == "ready"
            join = [inside("storm"), seconds, str(seed + 100), processes, "join"]
            with foreground(made.argv(mgpu.runtime, "exec", made.container, *join)) as second:
                assert second.line() == "ready"
                assert first.line() == "done"
                assert second.line() == "done"
                ledger, card = mgpu.in_use()
                assert ledger == card
                [container] = mgpu.containers()
                for share in container["cards"]:
                    assert share["used_bytes"] <= share["peak_bytes"] <= share["memory_mib"] * MIB
                held = [p["used_bytes"] for p in container["processes"]]
                assert sum(held) == sum(card)
            made.call(mgpu.runtime, "kill", made.container, "KILL")
        until(lambda: mgpu.containers() == [], "the grant is back")
        assert mgpu.in_use() == ([0, 0], [0, 0])


def test_processes_killed_in_the_middle_of_calls(mgpu: Arbiter, built: Programs) -> None:
    """Each of them has files of its own, which end with it."""
    draw = random.Random(7)
    with built.bundle("mortal", "4", env={"MGPU_MEMORY_MIB": "4096"}) as made:
        with made.running(mgpu.runtime) as running:
            assert running.line() == "up"
            [container] = mgpu.containers()
            killed = 0
            while killed < KILLED:
                time.sleep(draw.uniform(0.001, 0.03))
                victims = [
                    p["pid"] for p in mgpu.containers()[0]["processes"] if p["pid"] != container["pid"]
                ]
                if victims:
                    # One that is gone is listed until the card has ended its files.
                    with suppress(ProcessLookupError):
                        os.kill(draw.choice(victims), signal.SIGKILL)
                        killed += 1
                used = mgpu.containers()[0]["cards"][0]["used_bytes"]
                assert used <= 4096 * MIB
            made.call(mgpu.runtime, "kill", made.container, "KILL")
        until(lambda: mgpu.containers() == [], "the grant is back")
        assert mgpu.in_use() == ([0, 0], [0, 0])


def test_files_of_a_tenant_are_limited(mgpu: Arbiter, built: Programs) -> None:
    with built.bundle("many_files", "20000", env={"MGPU_MEMORY_MIB": "512"}) as greedy:
        with greedy.running(mgpu.runtime) as running:
            assert running.line() == "opened 4096 errno 24"
            with built.bundle("capped", env={"MGPU_MEMORY_MIB": "512"}) as other:
                other.output(mgpu.runtime)
            greedy.call(mgpu.runtime, "kill", greedy.container, "KILL")
        until(lambda: mgpu.containers() == [], "the grants are back")
