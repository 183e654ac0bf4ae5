"""A container whose memory of the card was moved away, carried to another mgpud by runc and CRIU, and saved
and restored by containerd: it comes back by itself.
"""

import os
import secrets
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support import arbiter, containerd, criu
from tests.support.arbiter import Arbiter
from tests.support.carried import CAP_MIB, numba
from tests.support.checkpoint import Checkpoint
from tests.support.colocation import pid_of
from tests.support.commands import attempt
from tests.support.containerd import Containerd
from tests.support.foreign import CASES, CASES_INSIDE, PACKAGES_INSIDE
from tests.support.places import FOREIGN_PACKAGES
from tests.support.waiting import until


@pytest.fixture(scope="module", autouse=True)
def _criu(private_host: None) -> Iterator[None]:
    with criu.on_path():
        yield


@pytest.fixture(scope="module")
def two(private_host: None) -> Iterator[tuple[Arbiter, Arbiter]]:
    with (
        arbiter.running("a10:1") as one,
        arbiter.running("a10:1", sim_options=["machine=1"]) as other,
    ):
        yield one, other


def test_container_goes_on_under_another_mgpud_with_another_gpu(
    two: tuple[Arbiter, Arbiter], tmp_path: Path
) -> None:
    one, other = two
    assert one.listing()["cards"][0]["uuid"] != other.listing()["cards"][0]["uuid"]
    with numba(tmp_path / "images") as carried:
        before = carried.start(one)
        full = one.in_use()
        carried.leave(one)
        done = carried.restore(other, "--detach")
        assert not done.status, done
        assert carried.look() == before
        assert other.in_use() == full
        (row,) = other.containers()
        assert (row["state"], row["lost_listener"]) == ("bound", False)
        assert row["reclaim"]["state"] == "running"
    arbiter.until_empty(other)


def test_memory_moved_off_behind_mgpus_back_comes_back_whichever_mgpud_finds_it(
    two: tuple[Arbiter, Arbiter], checkpoint: Checkpoint, tmp_path: Path
) -> None:
    one, other = two
    with numba(tmp_path / "images") as carried:
        before = carried.start(one)
        checkpoint.move_away(pid_of(one, carried.made.container))
        assert not carried.save(one).status
        done = carried.restore(other, "--detach")
        assert not done.status, done
        other.kill("mgpud")
        assert carried.look() == before
    arbiter.until_empty(other)


def test_container_that_is_on_its_card_cannot_be_saved_and_goes_on(
    two: tuple[Arbiter, Arbiter], tmp_path: Path
) -> None:
    with numba(tmp_path / "images") as carried:
        before = carried.start(two[0])
        refused = carried.save(two[0])
        assert "which no checkpoint would have in it; mgpu evict" in refused.err, str(refused)
        assert carried.look() == before


def test_processes_that_may_gain_privileges_are_not_restored(
    two: tuple[Arbiter, Arbiter], tmp_path: Path
) -> None:
    one, other = two
    with numba(tmp_path / "images", new_privileges=True) as carried:
        carried.made.edit(lambda config: config["process"].update(capabilities={}))
        carried.start(one)
        carried.leave(one)
        done = carried.restore(other, "--detach")
        assert done.status
        assert "may gain privileges" in done.err, str(done)
        arbiter.until_empty(other)


def without_a_call(image: Path) -> None:
    """A filter of another mgpu, which does not know one kind of today's calls: its comparison never holds."""
    whole = image.read_bytes()
    of_allocs = struct.pack("<I", 0x00200020)
    assert of_allocs in whole
    image.write_bytes(whole.replace(of_allocs, struct.pack("<I", 0x002000FF)))


def cut_off(image: Path) -> None:
    os.truncate(image, image.stat().st_size // 2)


def other_bytes(image: Path) -> None:
    image.write_bytes(bytes(image.stat().st_size))


@pytest.mark.parametrize(
    ("image", "spoil", "said"),
    [
        ("seccomp.img", without_a_call, "is not one of this mgpu: it lets ioctl 0x380027 of x86-64 through"),
        ("seccomp.img", cut_off, "seccomp.img in"),
        ("seccomp.img", Path.unlink, "seccomp.img in"),
        ("pages-1.img", cut_off, "pages-1.img in"),
        ("mgpu-checkpoint.json", Path.unlink, "which mgpu-runtime writes into each checkpoint"),
        ("mgpu-checkpoint.json", cut_off, "that can be read"),
        ("pstree.img", other_bytes, "criu failed"),
    ],
)
def test_spoilt_checkpoint_is_refused_and_nothing_of_it_is_left(
    two: tuple[Arbiter, Arbiter],
    tmp_path: Path,
    image: str,
    spoil: Callable[[Path], None],
    said: str,
) -> None:
    one, other = two
    with numba(tmp_path / "images") as carried:
        before = carried.start(one)
        carried.leave(one)
        whole = tmp_path / "whole"
        shutil.copytree(carried.images, whole)
        spoil(carried.images / image)
        done = carried.restore(other, "--detach")
        assert done.status
        assert said in done.err, str(done)
        # runc warns of cgroups that it removes at its second try.
        lines = [line for line in done.err.splitlines() if "level=warning" not in line]
        assert len(lines) == 1, str(done)
        arbiter.until_empty(other)
        shutil.rmtree(carried.images)
        whole.rename(carried.images)
        done = carried.restore(other, "--detach")
        assert not done.status, done
        assert carried.look() == before
    arbiter.until_empty(other)


# Looks once a second, and writes down what it sees.
LOOKS = f"(while sleep 1; do echo; done) | python3 {CASES_INSIDE}/evicted_numba.py >/out 2>&1"


def seen(engine: Containerd) -> list[str]:
    """The output of the program in the container so far."""
    told = engine.try_ctr("task", "exec", "--exec-id", secrets.token_hex(4), "carried", "cat", "/out")
    return told.out.splitlines()


def start_by_ctr(engine: Containerd, mgpu: Arbiter) -> None:
    options = ["--detach"]
    for source, inside in ((FOREIGN_PACKAGES, PACKAGES_INSIDE), (CASES, CASES_INSIDE)):
        options += ["--mount", f"type=bind,src={source},dst={inside},options=rbind:ro"]
    env = {"MGPU_MEMORY_MIB": str(CAP_MIB), "PYTHONPATH": PACKAGES_INSIDE, "PYTHONDONTWRITEBYTECODE": "1"}
    done = attempt(
        *engine.run_argv("carried", "sh", "-c", LOOKS, runtime=mgpu.runtime, env=env, options=options)
    )
    assert not done.status, done


def test_containerd_saves_and_restores_a_container_of_several_processes(
    two: tuple[Arbiter, Arbiter],
) -> None:
    mgpu = two[0]
    with containerd.running("ctd", path=lambda _: criu.folder()) as engine:
        start_by_ctr(engine, mgpu)
        until(lambda: len(seen(engine)) > 1, "the program has looked")
        full = mgpu.in_use()
        mgpu.mgpu("evict", "carried")
        engine.ctr("container", "checkpoint", "--task", "--rw", "--image", "carried", "saved")
        before = seen(engine)
        engine.remove("carried")
        arbiter.until_empty(mgpu)
        engine.ctr("container", "restore", "--live", "--rw", "carried", "saved")
        until(lambda: len(seen(engine)) > len(before), "it goes on")
        assert set(seen(engine)) == set(before)
        assert len(set(before)) == 1
        # A program that looks has a buffer more for a moment.
        until(lambda: mgpu.in_use() == full, "it has what it had")
    arbiter.until_empty(mgpu)
