"""A container that holds a whole card, and one that has a share of another: what only the first gets,
and that neither gets at the other's card by it.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from oci_specs.refusal import Refusal
from tests.support import arbiter
from tests.support import rm_numbers as nv
from tests.support.arbiter import Arbiter
from tests.support.lasting import shared_mgpu
from tests.support.programs import Programs
from tests.support.started import Foreground
from tests.support.waiting import until

INVALID_CLASS = nv.NV_ERR_INVALID_CLASS
REFUSED = f"profiler {INVALID_CLASS:#x} counters {nv.NV_ERR_NOT_SUPPORTED:#x} foreign {INVALID_CLASS:#x}"
NO_VIDEO = f"channel 0 decoder {INVALID_CLASS:#x}"
SERVED = f"profiler 0 counters 0 foreign {nv.NV_ERR_INVALID_CLIENT:#x}"


two = shared_mgpu("h200:2")


@contextmanager
def tries(
    mgpu: Arbiter, built: Programs, program: str = "profiler", **env: str
) -> Iterator[tuple[Foreground, str]]:
    with built.bundle(program, env=env) as made, made.running(mgpu.runtime) as running:
        yield running, made.container


def test_share_and_a_whole_card(two: Arbiter, built: Programs) -> None:
    with (
        tries(two, built, MGPU_MEMORY_MIB="512") as (share, _),
        tries(two, built, MGPU_GPUS="1") as (whole, container),
    ):
        assert share.line() == f"trace 0 {REFUSED} cards 1"
        assert whole.line() == f"trace 0 {SERVED} cards 1"
        # It stays whole while it runs.
        with pytest.raises(Refusal, match="was given whole GPUs, which nobody else may use"):
            two.ask("set", container=container, memory_mib=512)


def test_whole_card_lends_nothing(private_host: None, built: Programs) -> None:
    with (
        arbiter.running("h200:1", node_config="offline_overcommit = true\n") as mgpu,
        tries(mgpu, built, MGPU_GPUS="1", MGPU_QOS="offline", MGPU_MEMORY_RECLAIMABLE="true") as (lent, _),
    ):
        assert "without an amount of memory" in lent.line()


def test_it_stays_whole_under_the_next_mgpud(private_host: None, built: Programs) -> None:
    with arbiter.running("h200:1") as mgpu, tries(mgpu, built, MGPU_GPUS="1") as (whole, _):
        assert whole.line() == f"trace 0 {SERVED} cards 1"
        mgpu.kill("mgpud")
        for _ in range(2):
            whole.tell()
            assert whole.line() == "counters 0"
        with tries(mgpu, built, MGPU_MEMORY_MIB="512") as (share, _):
            assert "512 MiB asked, but the most that is free is 0 MiB" in share.line()


def test_decoder_with_a_whole_card(private_host: None, built: Programs) -> None:
    """It runs, nothing of it is left when it is killed, and without the driver capability there is none."""
    with arbiter.running("h200:1") as mgpu:
        with tries(mgpu, built, "video", MGPU_GPUS="1", NVIDIA_DRIVER_CAPABILITIES="all") as (decodes, _):
            assert decodes.line() == "channel 0 decoder 0"
            decodes.tell()
            assert decodes.line() == "done"
            groups, busy_ns = mgpu.on_video()
            assert (groups, busy_ns >= 800_000_000) == (1, True)
            assert mgpu.used_bytes() == [card.used_bytes for card in mgpu.account().cards] != [0]
            mgpu.kill("mgpud")
            decodes.tell()
            assert decodes.line() == "done"
        until(lambda: mgpu.on_video()[0] == 0, "its channel is gone")
        until(lambda: mgpu.used_bytes() == [0], "so is its charge")
        with tries(mgpu, built, "video", MGPU_GPUS="1") as (computes, _):
            assert computes.line() == NO_VIDEO
            [row] = mgpu.containers()
            assert row["capabilities"] == ["compute", "utility"]


def test_decoder_that_is_paused_makes_no_ns_and_goes_on_whole(private_host: None, built: Programs) -> None:
    env = {"MGPU_GPUS": "1", "MGPU_QOS": "offline", "NVIDIA_DRIVER_CAPABILITIES": "video"}
    with (
        arbiter.running("h200:1") as mgpu,
        built.bundle("video", "2", "2000", env=env) as made,
        made.running(mgpu.runtime) as decodes,
    ):
        assert decodes.line() == "channel 0 decoder 0"
        decodes.tell()
        until(lambda: mgpu.on_video()[1] > 0, "it decodes")
        made.call(mgpu.runtime, "pause", made.container)
        until(lambda: not mgpu.account().cards[0].engines[-1].groups[0].open, "it is suspended")
        before = mgpu.on_video()
        time.sleep(0.3)
        assert mgpu.on_video() == before
        [group] = mgpu.account().cards[0].engines[-1].groups
        assert (group.engine, group.pending, group.open) == ("video", True, False)
        made.call(mgpu.runtime, "resume", made.container)
        assert decodes.line() == "done"
        until(lambda: mgpu.account().cards[0].engines[-1].groups[0].kernels == 2, "both are done")
        [group] = mgpu.account().cards[0].engines[-1].groups
        assert (group.kernel_ns, group.run_ns, group.errors) == (4_000_000_000, 4_000_000_000, 0)


def test_node_that_gives_no_video(private_host: None, built: Programs) -> None:
    config = 'supported_driver_capabilities = ["compute", "utility"]\n'
    with arbiter.running("h200:1", node_config=config) as mgpu:
        with tries(mgpu, built, "video", MGPU_GPUS="1", NVIDIA_DRIVER_CAPABILITIES="video") as (none, _):
            assert none.line().endswith(
                "NVIDIA_DRIVER_CAPABILITIES asks for video, which this node gives to no container; "
                "leave it out, or add it to supported_driver_capabilities in node.toml"
            )
        with tries(mgpu, built, "video", MGPU_GPUS="1", NVIDIA_DRIVER_CAPABILITIES="all") as (some, _):
            assert some.line() == NO_VIDEO
