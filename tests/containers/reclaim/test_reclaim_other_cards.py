"""An evicted container goes on with its data on another card of the node."""

import json
from typing import Any

from sim import cards
from tests.support import arbiter
from tests.support.arbiter import Arbiter
from tests.support.commands import Done
from tests.support.lasting import lasting_mgpu
from tests.support.lending import (
    FILL_MIB,
    KEEPER,
    LENDS,
    OFFLINE,
    ONLINE,
    Running,
    keeper,
    rounds,
    started,
    turn,
)
from tests.support.programs import Programs, inside
from tests.support.started import foreground
from tests.support.waiting import until

# NVML's answers in the container, and the nodes of which a mediated call says that they are not its own.
LOOK = """
import errno, fcntl, glob, json, os, pynvml
pynvml.nvmlInit()
seen = [pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(i)) for i in range(pynvml.nvmlDeviceGetCount())]
pynvml.nvmlShutdown()
refused = []
for path in sorted(glob.glob("/dev/nvidia[0-9]*")):
    try:
        fcntl.ioctl(os.open(path, os.O_RDWR), 0xC00446C9, bytes(4))
    except OSError as error:
        refused += [path] if error.errno == errno.ENOTTY else []
print(json.dumps([seen, refused]))
"""
MONITOR = "import pynvml; pynvml.nvmlInit(); pynvml.nvmlDeviceGetHandleByIndex(0); print('up', flush=True); input()"


lasting, mgpu = lasting_mgpu("v100-16:3,a10:1", node_config=LENDS)


def uuids(mgpu: Arbiter) -> list[str]:
    return [card["uuid"] for card in mgpu.listing()["cards"]]


def on(made: Running) -> list[str]:
    return [card["uuid"] for card in made.row["cards"]]


def look(made: Running) -> tuple[list[str], list[str]]:
    argv = made.bundle.argv(made.mgpu.runtime, "exec", made.bundle.container, "python3", "-c", LOOK)
    with foreground(argv) as running:
        seen, refused = json.loads(running.line())
        return seen, refused


def resume(made: Running, *gpus: str) -> Done:
    return made.mgpu.try_mgpu("resume", made.bundle.container, "--gpus", ",".join(gpus))


def test_container_goes_on_elsewhere_and_comes_back(mgpu: Arbiter, built: Programs) -> None:
    first, second, third, _ = uuids(mgpu)
    with keeper(mgpu, built, "2") as offline:
        name, before, full = offline.bundle.container, rounds(offline), mgpu.used_bytes()[0]
        assert look(offline) == ([first], ["/dev/nvidia1", "/dev/nvidia2"])
        for turn_, there in enumerate((second, third, first)):
            mgpu.mgpu("evict", name)
            assert "bound" in mgpu.mgpu("resume", name, "--gpus", there)
            assert on(offline) == [there]
            assert rounds(offline) > before
            at = (turn_ + 1) % 3
            assert mgpu.used_bytes() == [full if index == at else 0 for index in range(4)]
            assert mgpu.used_bytes() == [card.used_bytes for card in mgpu.account().cards]
            others = [f"/dev/nvidia{minor}" for minor in range(3) if minor != at]
            assert look(offline) == ([there], others)


def test_of_two_cards_one_changes(mgpu: Arbiter, built: Programs) -> None:
    first, second, third, _ = uuids(mgpu)
    asked = {**OFFLINE, "mgpu.dev/gpus": "2", "mgpu.dev/memory-mib": "2048"}
    with started(mgpu, built, asked, *KEEPER) as offline:
        assert offline.program.line() == "up"
        before = rounds(offline)
        assert on(offline) == [first, second]
        mgpu.mgpu("evict", offline.bundle.container)
        assert not resume(offline, third, second).status
        assert on(offline) == [second, third]
        assert rounds(offline) > before
        assert look(offline)[0] == [second, third]


def test_its_own_card_by_name_is_a_plain_resumption(mgpu: Arbiter, built: Programs) -> None:
    first = uuids(mgpu)[0]
    with keeper(mgpu, built) as offline:
        mgpu.mgpu("evict", offline.bundle.container)
        assert not resume(offline, first).status
        assert (on(offline), rounds(offline) > 0) == ([first], True)


def without_sched(row: dict[str, Any]) -> dict[str, Any]:
    """Without what the scheduler goes on counting."""
    return {name: value for name, value in row.items() if name != "sched"}


def test_bad_gpus_are_refused_in_a_line_and_nothing_moves(mgpu: Arbiter, built: Programs) -> None:
    first, second, _, a10 = uuids(mgpu)
    with keeper(mgpu, built) as offline:
        before = rounds(offline)
        running = resume(offline, second)
        assert "is running, not evicted" in running.err
        mgpu.mgpu("evict", offline.bundle.container)
        row = without_sched(offline.row)
        for gpus, said in (
            (("GPU-none",), 'this node has no GPU "GPU-none"'),
            ((first, second), "2 GPUs named, and container"),
            ((second, second, first), "2 GPUs named, and container"),
            ((a10,), "GPU 3 is a NVIDIA A10, and what was on a Tesla V100-SXM2-16GB"),
        ):
            done = resume(offline, *gpus)
            assert (done.status, done.err.count("\n")) == (1, 1), done
            assert said in done.err
            assert without_sched(offline.row) == row
        elsewhere = {**ONLINE, "mgpu.dev/gpus": second}
        with started(mgpu, built, elsewhere, inside("taker"), str(FILL_MIB)) as online:
            assert online.program.line() == "up"
            turn(online)
            done = resume(offline, second)
            assert (done.status, done.err.count("\n")) == (1, 1), done
            assert "MiB" in done.err
            assert without_sched(offline.row) == row
        until(lambda: len(mgpu.containers()) == 1, "online is gone")
        monitor = offline.bundle.argv(
            mgpu.runtime, "exec", offline.bundle.container, "python3", "-c", MONITOR
        )
        with foreground(monitor) as looks:
            assert looks.line() == "up"
            done = resume(offline, second)
            assert "has a process that was not evicted and has its GPU open" in done.err, done
            assert without_sched(offline.row) == row
            looks.tell()
            looks.process.wait()
        until(lambda: not resume(offline, second).status, "nothing holds it there any more")
        assert rounds(offline) > before


def test_older_driver_is_said_and_gives_no_other_nodes(private_host: None, built: Programs) -> None:
    options = ["driver-version=570.86.15"]
    with arbiter.running("v100-16:2", node_config=LENDS, sim_options=options) as mgpu:
        with keeper(mgpu, built) as offline:
            assert look(offline) == ([uuids(mgpu)[0]], [])
            mgpu.mgpu("evict", offline.bundle.container)
            done = resume(offline, uuids(mgpu)[1])
            assert "driver 570.86.15 restores a process onto its own GPUs only" in done.err
            mgpu.mgpu("resume", offline.bundle.container)
            assert rounds(offline)
        arbiter.until_empty(mgpu)


def test_lost_card_is_refused_and_one_that_is_lost_is_left(private_host: None, built: Programs) -> None:
    with arbiter.running("v100-16:3", node_config=LENDS) as mgpu:
        _, second, third = uuids(mgpu)
        with keeper(mgpu, built) as offline:
            before = rounds(offline)
            mgpu.mgpu("evict", offline.bundle.container)
            for minor in (0, 1):
                cards.ask(mgpu.root / "sim" / "admin.sock", f"lose {minor}")
            until(lambda: all(card["lost"] for card in mgpu.listing()["cards"][:2]), "mgpud sees the loss")
            done = resume(offline, second)
            assert "has fallen off the bus" in done.err
            assert not resume(offline, third).status
            assert (on(offline), rounds(offline) > before) == ([third], True)
        arbiter.until_empty(mgpu)
