"""Programs that look CUDA up as they load, or ask NVML: each as far as a simulated card goes."""

import json
from collections.abc import Iterator

import pytest

from tests.support import arbiter
from tests.support.arbiter import Arbiter
from tests.support.bundle import bundle
from tests.support.foreign import mount, run_foreign
from tests.support.places import FOREIGN

CAP_MIB = 2048
# Debian 13's has the option that prints once. It has its own loader and libraries, but for the driver's.
NVTOP = ("/nvtop/usr/lib64/ld-linux-x86-64.so.2", "--library-path", "/nvtop/usr/lib/x86_64-linux-gnu")


@pytest.fixture(scope="module")
def mgpu(private_host: None) -> Iterator[Arbiter]:
    with arbiter.running("a10:1") as running:
        yield running
        assert [card.used_bytes for card in running.account().cards] == [0]


def test_nvtop_shows_the_card(mgpu: Arbiter) -> None:
    mounts = [mount(FOREIGN / "nvtop", "/nvtop")]
    with bundle(
        *NVTOP, "/nvtop/usr/bin/nvtop", "-s", env={"MGPU_MEMORY_MIB": str(CAP_MIB)}, mounts=mounts
    ) as made:
        done = made.run(mgpu.runtime)
    assert done.status == 0, done
    [card] = json.loads(done.out)
    assert (card["device_name"], card["gpu_util"]) == ("NVIDIA A10", "0%")


def test_ffmpeg_opens_the_card_and_says_which_library_is_missing_for_video(mgpu: Arbiter) -> None:
    seen = run_foreign(mgpu, "media_cases.py", memory_mib=CAP_MIB)
    assert 0 == seen.pop("before_mib") == seen.pop("after_mib") < seen.pop("with_mib")
    decoder, encoder = ([f"Cannot load {name}"] for name in ("libnvcuvid.so.1", "libnvidia-encode.so.1"))
    assert seen == {"known": True, "decoding": decoder, "encoding": encoder}


def test_taichi_launches_kernels_on_the_card(mgpu: Arbiter) -> None:
    seen = run_foreign(mgpu, "taichi_cases.py", memory_mib=CAP_MIB)
    assert seen == {"arch": "cuda", "takes_memory": True, "value": 0.0}
