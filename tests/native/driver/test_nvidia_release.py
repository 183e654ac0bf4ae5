"""The arbiter's own files and mappings of a card of NVIDIA's driver, until it lets go of it."""

import os
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.native.fake_rm import ALLOC, DEVICE, FREE, Call, MigRm, Rm
from tests.native.nvidia_mediated import World, world
from tests.native.nvidia_parts import CTL, Driver, driver, processes
from tests.native.retained_steps import working_group
from tests.native.status_registers import engines, on_instances, write_word
from tests.support.waiting import until

INSTANCE = (3, 0)


def held(folder: Path) -> set[str]:
    """Files below the folder that this process has open or mapped, by their names."""
    found = set()
    for entry in os.scandir("/proc/self/fd"):
        try:
            found.add(os.readlink(entry))
        except FileNotFoundError:  # the scan's own
            continue
    found |= {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines()}
    return {Path(name).name for name in found if Path(name).is_relative_to(folder)}


@contextmanager
def on_two_cards(folder: Path, rm: Rm) -> Iterator[Driver]:
    rm.cards = 2
    rm.bases = {1: 0x1000}
    (folder / "dev").mkdir()
    (folder / "dev" / "nvidia1").touch()
    with driver(folder, rm) as nvidia:
        for card in range(2):
            nvidia.add_card(card, minor=card)
        yield nvidia


def test_nothing_of_a_released_card_is_open(bar: Path, tmp_path: Path) -> None:
    with on_two_cards(tmp_path, Rm()) as nvidia:
        assert held(tmp_path) == {"nvidiactl", "nvidia0", "nvidia1", bar.name}
        for _ in range(2):
            nvidia.call("release_card", 0, 0)
            assert held(tmp_path) == {"nvidiactl", "nvidia1", bar.name}
        assert len(engines(nvidia, 1)) == 1


def test_last_card_takes_the_driver_with_it_where_no_tenant_asks(bar: Path, tmp_path: Path) -> None:
    with on_two_cards(tmp_path, Rm()) as nvidia:
        for card in range(2):
            nvidia.call("release_card", card, 0)
        assert held(tmp_path) == {"nvidiactl"}
        nvidia.call("release_card", 1, 1)
        assert held(tmp_path) == set()
        nvidia.add_card(0)
        assert held(tmp_path) == {"nvidiactl", "nvidia0", bar.name}


def devices(calls: list[Call], nr: int) -> list[int]:
    """Handles of the devices that were made, or of all that was freed."""
    made = [c.outer for c in calls if c.nr == nr]
    return [
        struct.unpack_from("I", outer, 8)[0]
        for outer in made
        if nr == FREE or struct.unpack_from("I", outer, 12)[0] == DEVICE
    ]


def test_card_is_attached_and_read_anew(bar: Path, tmp_path: Path) -> None:
    """As after a reset: what the arbiter had of it means nothing any more."""
    rm = Rm()
    with on_two_cards(tmp_path, rm) as nvidia:
        first = devices(rm.calls, ALLOC)[0]
        nvidia.call("release_card", 0, 0)
        assert devices(rm.calls, FREE) == [first]
        rm.bases = {1: 0x2000, 10: 0x3000}
        write_word(bar, 0x2200, 0x8000_0007)
        nvidia.add_card(0)
        assert engines(nvidia) == [(7, 1), (0, 0)]
        assert len(set(devices(rm.calls, ALLOC))) == 3


def test_card_that_cannot_be_attached_is_tried_again(bar: Path, tmp_path: Path) -> None:
    with on_two_cards(tmp_path, Rm()) as nvidia:
        nvidia.call("release_card", 0, 0)
        (tmp_path / "dev" / "nvidia0").unlink()
        nvidia.add_card(0)
        assert engines(nvidia) == []
        (tmp_path / "dev" / "nvidia0").touch()
        nvidia.add_card(0)
        assert len(engines(nvidia)) == 1


def test_gpu_is_open_while_one_of_its_instances_is_not_released(mig: MigRm, tmp_path: Path) -> None:
    with on_instances(tmp_path, mig) as nvidia:
        for card in (0, 2):
            nvidia.call("release_card", card, 0)
        assert "nvidia0" in held(tmp_path)
        assert len(engines(nvidia, 1)) == 2
        nvidia.call("release_card", 1, 0)
        assert held(tmp_path) == {"nvidiactl"}


def test_file_of_a_tenant_keeps_nothing_of_ours(bar: Path, tmp_path: Path) -> None:
    with on_two_cards(tmp_path, Rm()) as nvidia, processes() as start:
        process = start()
        file = nvidia.identify(process, process.tell("open", nvidia.nodes[CTL]))
        nvidia.call("release_card", 0, 0)
        assert nvidia.fetch(file) == 0
        assert held(tmp_path) == {"nvidiactl", "nvidia1", bar.name}


@pytest.fixture
def here(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path, [INSTANCE], seen=True) as made:
        yield made


def test_scheduler_polls_while_the_card_is_released_and_taken_again(here: World, tmp_path: Path) -> None:
    """Its registers are unmapped while its thread is about to read them."""
    here.slow_status()
    offline, online = here.tenant(offline=True), here.tenant()
    views = [(tenant, working_group(tenant, tenant.client())) for tenant in (offline, online)]
    for tenant, view in views:
        assert tenant.tell("put", view, 3) == "put"
    until(lambda: here.engine.stats().polls > 10, "they are polled")
    assert "resource0" in held(tmp_path)
    [card] = here._cards
    polls: int
    turns: int

    def polled() -> bool:
        now: int = here.engine.stats().polls
        return now > polls

    def turned() -> bool:
        now: int = here.engine.stats().turns
        return now > turns

    for number in range(100):
        polls = here.engine.stats().polls
        until(polled, "a poll", poll_s=0)
        # A poll takes a millisecond, and half of one is between two: this ends anywhere in them.
        time.sleep(number * 20e-6)
        here.engine.release_card(0)
        here.engine.add_card(card)
    here.engine.release_card(0)
    assert "resource0" not in held(tmp_path)
    polls, turns = here.engine.stats().polls, here.engine.stats().turns
    for _ in range(10):
        here.engine.pulse()
        until(turned, "a turn", poll_s=0)
        turns = here.engine.stats().turns
    assert here.engine.stats().polls == polls
    assert not here.engine.sched(online.id).busy
