"""Time on the simulated card's engines: what runs when, to the nanosecond."""

import os
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from sim.cards import CardProcess
from tests.sim.card_channel import (
    MS,
    US,
    Channel,
    Group,
    S,
    acquire,
    card_totals,
    copy,
    doorbell,
    gate,
    kernel,
    longer,
    release,
    timeline,
)
from tests.sim.card_protocol import COPY_ENGINE, GRAPHICS_ENGINE, OK, PREEMPT, SET_TIMESLICE, Client
from tests.support.rm_numbers import NV20_SUBDEVICE_0
from tests.support.waiting import until

NewClient = Callable[..., Client]
# A driver without DISABLE_CHANNELS stops a group that is not to be scheduled.
CARD_OPTIONS = ("--disable-channels", "0")
HALF_SWITCH_NS = 50 * US
SLICE_NS = 2048 * US
V100_COPY_BYTES_PER_MS = 12 << 20


@pytest.fixture(autouse=True)
def nothing_passed_over(card: CardProcess) -> None:
    """The card kept up with its own time in every test before: what they saw is what it computed."""
    assert card_totals(card)["slipped_ns"] == 0


def set_timeslice(group: Group, timeslice_us: int) -> None:
    params = timeslice_us.to_bytes(8, "little")
    assert group.client.control(SET_TIMESLICE, params, group.handle)[0] == OK


def history(card: CardProcess, since: int, *groups: Group) -> list[list[Any]]:
    """What the timeline has of these groups from then on, and nothing that it lost."""
    told = timeline(card, 0, since)
    assert not told.lost
    ids = {group.tsg for group in groups}
    return [entry for entry in told.entries if entry[2] in ids]


def now(card: CardProcess) -> int:
    """The number of the timeline's next entry."""
    return timeline(card).next


def wait_until_off(card: CardProcess, group: Group) -> dict[str, Any]:
    until(lambda: not group.totals(card)["pending"], "it has nothing to do", poll_s=0.002)
    return group.totals(card)


def together(client: Client, *commands: bytes) -> list[Channel]:
    """Channels of two groups which get this work in the same instant, however long the program takes to give
    it.
    """
    channels = [Channel(Group(client, enabled=False)) for _ in range(2)]
    for channel in channels:
        channel.write(gate(channels[0].memory), *commands)
    return channels


def start(channels: list[Channel]) -> None:
    for channel in channels:
        channel.group.schedule(enable=True)
    channels[0].open_gate()


def test_kernel_takes_its_duration_exactly(card: CardProcess, new_client: NewClient) -> None:
    channel = Channel(Group(new_client()))
    before = channel.submit(release(0), kernel(3 * MS), release(1), kernel(1), kernel(0), release(2))
    end = channel.wait(2)
    start, middle = channel.semaphore(0)[1], channel.semaphore(1)[1]
    assert start >= before + HALF_SWITCH_NS
    assert (middle - start, end - middle) == (3 * MS, 1)
    assert end <= time.monotonic_ns()
    totals = channel.group.totals(card)
    assert (totals["kernels"], totals["kernel_ns"], totals["run_ns"]) == (3, 3 * MS + 1, 3 * MS + 1)
    assert (totals["switch_ns"], totals["pending"], totals["errors"]) == (HALF_SWITCH_NS, False, 0)


def test_entries_known_in_time_run_back_to_back(new_client: NewClient) -> None:
    """However late the card's thread wakes: 500 kernels of 50 us in 500 entries take 25 ms."""
    channel = Channel(Group(new_client()))
    channel.write(kernel(MS), release(0))
    for i in range(500):
        channel.write(kernel(50 * US), release(1 + i))
    channel.ring()
    channel.wait(500)
    ends = [channel.semaphore(i)[1] for i in range(501)]
    assert {later - earlier for earlier, later in pairwise(ends)} == {50 * US}


def test_entry_found_later_starts_when_it_is_found(new_client: NewClient) -> None:
    channel = Channel(Group(new_client()))
    channel.submit(kernel(MS), release(0))
    channel.wait(0)
    before = channel.submit(release(1), kernel(MS), release(2))
    end = channel.wait(2)
    assert channel.semaphore(1)[1] >= before
    assert end - channel.semaphore(1)[1] == MS


def test_idle_group_resumes_without_a_switch(card: CardProcess, new_client: NewClient) -> None:
    channel = Channel(Group(new_client()))
    for i in range(3):
        channel.submit(kernel(100 * US), release(i))
        channel.wait(i)
    assert channel.group.totals(card)["switch_ns"] == HALF_SWITCH_NS


def test_channels_of_a_group_take_turns_by_entry(new_client: NewClient) -> None:
    group = Group(new_client(), enabled=False)
    first = Channel(group)
    channels = [first, *(Channel(group) for _ in range(2))]
    for channel in channels:
        for i in range(4):
            channel.write(kernel(100 * US), kernel(100 * US), release(i))
    group.schedule(enable=True)
    for channel in channels:
        channel.wait(3)
    order = sorted((channel.semaphore(i)[1], i, n) for n, channel in enumerate(channels) for i in range(4))
    assert [(i, n) for _, i, n in order] == [(i, n) for i in range(4) for n in range(3)]
    assert {later[0] - earlier[0] for earlier, later in pairwise(order)} == {200 * US}


def test_two_groups_share_equally(card: CardProcess, new_client: NewClient) -> None:
    """Slices to the nanosecond, half a switch to save and half to load between them, and no time lost."""
    since = now(card)
    channels = together(new_client(), kernel(100 * MS), release(0))
    start(channels)
    for channel in channels:
        channel.wait(0)
    groups = [channel.group for channel in channels]
    told = history(card, since, *groups)
    runs = [entry for entry in told if entry[0] == "run"]
    for group in groups:
        assert sum(end - start for _, _, tsg, _, start, end in runs if tsg == group.tsg) == 100 * MS
        totals = group.totals(card)
        assert (totals["run_ns"], totals["kernel_ns"]) == (100 * MS, 100 * MS)
    both = [entry for entry in runs if runs[1][4] <= entry[4] and entry[5] <= runs[-2][5]][:-1]
    assert len(both) > 20
    assert {entry[5] - entry[4] for entry in both[:-1]} == {SLICE_NS}
    assert all(earlier[2] != later[2] for earlier, later in pairwise(both))
    assert {later[4] - earlier[5] for earlier, later in pairwise(both)} == {2 * HALF_SWITCH_NS}
    switches = [entry[5] - entry[4] for entry in told if entry[0] == "switch"]
    assert set(switches) == {HALF_SWITCH_NS}
    assert sum(switches) == sum(group.totals(card)["switch_ns"] for group in groups)


def test_unequal_timeslices_share_in_proportion(card: CardProcess, new_client: NewClient) -> None:
    channels = together(new_client(), kernel(90 * MS), release(0))
    since = now(card)
    for channel, timeslice_us in zip(channels, (3000, 1000), strict=True):
        set_timeslice(channel.group, timeslice_us)
    start(channels)
    for channel in channels:
        channel.wait(0)
    long, short = channels[0].group, channels[1].group
    runs = [entry for entry in history(card, since, long, short) if entry[0] == "run"]
    shared = [entry for entry in runs if entry[5] <= channels[0].semaphore(0)[1]]
    assert {entry[5] - entry[4] for entry in shared if entry[2] == short.tsg} == {MS}
    durations = [entry[5] - entry[4] for entry in shared if entry[2] == long.tsg]
    assert set(durations[1:]) == {3 * MS}
    assert durations[0] % (3 * MS) == 0


def test_short_timeslice_gives_way_at_once(card: CardProcess, new_client: NewClient) -> None:
    """0 counts as 1 us: a group that runs with it hands the engine over to any that comes."""

    def attempt(factor: int) -> bool:
        slow, fast = Channel(Group(new_client())), Channel(Group(new_client()))
        set_timeslice(slow.group, 0)
        set_timeslice(fast.group, 1_000_000)
        slow.submit(release(0), kernel(factor * 60 * MS), release(1))
        slow.wait(0)
        since = now(card)
        fast.submit(release(0), kernel(20 * MS), release(1))
        fast.wait(1)
        slow.wait(1)
        if fast.semaphore(0)[1] > slow.semaphore(1)[1]:
            return False
        told = history(card, since, slow.group, fast.group)
        slow_stop = next(entry[5] for entry in told if entry[:1] == ["run"] and entry[2] == slow.group.tsg)
        assert fast.semaphore(0)[1] == slow_stop + 2 * HALF_SWITCH_NS
        assert fast.semaphore(1)[1] - fast.semaphore(0)[1] == 20 * MS
        assert slow.group.totals(card)["run_ns"] == factor * 60 * MS
        return True

    longer(attempt)


def test_lone_group_begins_slice_after_slice(card: CardProcess, new_client: NewClient) -> None:
    """A group that comes waits for the end of the running timeslice, not for a whole one and not for none."""
    alone, late = Channel(Group(new_client())), Channel(Group(new_client()))
    since = now(card)
    set_timeslice(alone.group, 4000)
    alone.submit(kernel(80 * MS), release(0))
    time.sleep(0.013)
    late.submit(kernel(MS), release(0))
    late.wait(0)
    told = history(card, since, alone.group, late.group)
    first = next(entry for entry in told if entry[0] == "run")
    assert first[2] == alone.group.tsg
    assert first[5] - first[4] >= 12 * MS
    assert (first[5] - first[4]) % (4 * MS) == 0


def test_context_save_is_paid_for_a_begun_kernel_only(card: CardProcess, new_client: NewClient) -> None:
    """Groups whose slices end between two kernels pay for loading alone."""
    since = now(card)
    channels = together(new_client(), *[kernel(SLICE_NS)] * 40, release(0))
    start(channels)
    for channel in channels:
        channel.wait(0)
    told = history(card, since, *(channel.group for channel in channels))
    runs = [entry for entry in told if entry[0] == "run"]
    assert len(runs) >= 6
    assert {later[4] - earlier[5] for earlier, later in pairwise(runs)} == {HALF_SWITCH_NS}


def test_preempt_reschedules_and_does_not_suspend(card: CardProcess, new_client: NewClient) -> None:

    def attempt(factor: int) -> bool:
        first, second = Channel(Group(new_client())), Channel(Group(new_client()))
        for channel in (first, second):
            set_timeslice(channel.group, 8_000_000)
        first.submit(release(0), kernel(factor * 100 * MS), release(1))
        first.wait(0)
        second.submit(release(0), kernel(MS), release(1))
        time.sleep(0.005)
        waited = second.semaphore(0)[0] == 0
        client = first.client
        assert client.control(PREEMPT, bytes((1, 0, 0, 0)) + bytes(4), first.group.handle)[0] == OK
        before = second.wait(1) < first.wait(1)
        assert first.group.totals(card)["run_ns"] == factor * 100 * MS
        return waited and before

    longer(attempt)


def test_disabled_group_executes_nothing_and_resumes(card: CardProcess, new_client: NewClient) -> None:
    """A 10 s kernel is off the engine when the call returns, and loses nothing of what it has done."""
    channel = Channel(Group(new_client()))
    since = now(card)
    channel.submit(release(0), kernel(10 * S), release(1))
    channel.wait(0)
    time.sleep(0.01)
    asked = time.monotonic_ns()
    channel.group.schedule(enable=False)
    answered = time.monotonic_ns()
    before = channel.group.totals(card)
    channel.submit(kernel(MS))
    time.sleep(0.05)
    after = channel.group.totals(card)
    assert before == after
    assert (before["enabled"], before["pending"], before["kernels"]) == (False, True, 0)
    assert 10 * MS <= before["run_ns"] <= answered - channel.semaphore(0)[1]
    told = history(card, since, channel.group)
    (disabled,) = [entry for entry in told if entry[0] == "disable"]
    (save,) = [entry for entry in told if entry[0] == "switch" and entry[4] >= asked]
    assert save[5] - save[4] == HALF_SWITCH_NS
    assert asked <= save[4] < save[5] == disabled[4] == disabled[5] <= answered
    channel.group.schedule(enable=True)
    time.sleep(0.01)
    channel.group.schedule(enable=False)
    runs = [entry for entry in history(card, since, channel.group) if entry[0] == "run"]
    assert sum(end - start for *_, start, end in runs) == channel.group.totals(card)["run_ns"]
    assert channel.group.totals(card)["run_ns"] > before["run_ns"] + 9 * MS


def test_work_is_done_once_however_often_it_is_disabled(card: CardProcess, new_client: NewClient) -> None:
    channel = Channel(Group(new_client()))
    since = now(card)
    channel.submit(kernel(150 * MS), release(0), kernel(3 * MS), release(1))
    while channel.semaphore(1)[0] == 0:
        channel.group.schedule(enable=False)
        channel.group.schedule(enable=True)
        time.sleep(0.001)
    totals = channel.group.totals(card)
    assert (totals["kernels"], totals["kernel_ns"], totals["run_ns"]) == (2, 153 * MS, 153 * MS)
    told = history(card, since, channel.group)
    changes = [entry for entry in told if entry[0] in ("enable", "disable")]
    assert [kind for kind, *_ in changes] == ["disable", "enable"] * (len(changes) // 2)
    spans = [(off[4], on[4]) for off, on in zip(changes[::2], changes[1::2], strict=True)]
    assert len(spans) > 5
    for _, _, _, _, start, end in (entry for entry in told if entry[0] == "run"):
        assert not any(start < on and off < end for off, on in spans), (start, end)


def test_enabled_group_does_not_wait_for_a_tick(card: CardProcess, new_client: NewClient) -> None:
    since = now(card)
    channel = Channel(Group(new_client(), enabled=False))
    channel.submit(release(0), kernel(MS))
    time.sleep(0.01)
    assert channel.get == 0
    assert channel.semaphore(0)[0] == 0
    channel.group.schedule(enable=True)
    (enabled,) = [entry for entry in history(card, since, channel.group) if entry[0] == "enable"]
    assert channel.wait(0) == enabled[4] + HALF_SWITCH_NS


def test_fetching_runs_two_entries_ahead(card: CardProcess, new_client: NewClient) -> None:
    """GET is past what executes, so that GET==PUT does not mean finished; who is off the engine fetches
    nothing.
    """
    busy, waiting = Channel(Group(new_client())), Channel(Group(new_client()))
    set_timeslice(busy.group, 8_000_000)
    for _ in range(6):
        busy.write(kernel(10 * S))
    busy.write(release(0))
    busy.ring()
    waiting.submit(kernel(MS))
    waiting.submit(kernel(MS))
    until(lambda: busy.get >= 3, "two entries beyond the one that runs are fetched")
    time.sleep(0.02)
    assert (busy.get, busy.put) == (3, 7)
    assert waiting.get == 0
    busy.client.free(busy.group.handle)
    wait_until_off(card, waiting.group)
    assert waiting.get == waiting.put == 2


def test_get_equals_put_while_a_kernel_runs(card: CardProcess, new_client: NewClient) -> None:
    channel = Channel(Group(new_client()))
    channel.submit(release(0), kernel(10 * S))
    channel.wait(0)
    assert channel.get == channel.put == 1
    assert channel.group.totals(card)["pending"]


def test_copy_engine_runs_beside_graphics(card: CardProcess, new_client: NewClient) -> None:
    client = new_client()
    compute, mover = Channel(Group(client)), Channel(Group(client, COPY_ENGINE))
    size = 10 * V100_COPY_BYTES_PER_MS + 1
    mover.submit(acquire(0, 1, compute.memory), release(0), copy(size), release(1))
    compute.submit(release(0), kernel(30 * MS), release(1))
    assert mover.wait(1) - mover.semaphore(0)[1] == 10 * MS + MS // V100_COPY_BYTES_PER_MS
    compute.wait(1)
    assert compute.semaphore(0)[1] < mover.semaphore(1)[1] < compute.semaphore(1)[1]
    engines = {engine["engine"]: engine for engine in card_totals(card)["engines"]}
    assert [group["tsg"] for group in engines["copy"]["groups"]] == [mover.group.tsg]
    assert engines["copy"]["busy_ns"] >= 10 * MS


@pytest.mark.parametrize("engine", [GRAPHICS_ENGINE, COPY_ENGINE], ids=["same engine", "other engine"])
def test_acquire_waits_for_a_release_of_another_channel(
    card: CardProcess, new_client: NewClient, engine: int
) -> None:
    """At the very instant, when the engine is free; a group that only waits is not on the engine's queue."""
    client = new_client()
    producer = Channel(Group(client, engine))
    consumer = Channel(producer.group if engine == GRAPHICS_ENGINE else Group(client))
    consumer.submit(acquire(5, 3, producer.memory), release(0), kernel(MS), release(1))
    time.sleep(0.01)
    assert consumer.semaphore(0)[0] == 0
    if engine != GRAPHICS_ENGINE:
        assert consumer.group.totals(card)["run_ns"] == 0
    producer.submit(kernel(2 * MS), release(5, 2), kernel(2 * MS), release(5, 3))
    released = producer.wait(5, 3)
    consumer.wait(1)
    assert consumer.semaphore(0)[1] == released
    assert consumer.semaphore(1)[1] == released + MS


def test_acquire_is_told_by_a_doorbell_too(new_client: NewClient) -> None:
    """A host that releases a semaphore rings: a page cannot be watched. Values compare across the wrap."""
    channel = Channel(Group(new_client()))
    channel.submit(acquire(0, 0xFFFFFFFF), acquire(1, 0x80000010), release(2))
    channel.bytes[0xA010:0xA014] = (0x80000010).to_bytes(4, "little")
    channel.wait(2)  # 0 is after 0xffffffff
    channel.submit(acquire(3, 7), release(4))
    time.sleep(0.01)
    assert channel.semaphore(4)[0] == 0
    channel.bytes[0xA030:0xA034] = (7).to_bytes(4, "little")
    channel.ring()
    channel.wait(4)


def test_release_on_one_card_is_seen_on_another(connection: Any, card: CardProcess) -> None:
    client = Client(connection, 0)
    other = client.made(client.root, 0x80, (1).to_bytes(4, "little").ljust(56, b"\0"))
    first = Channel(Group(client))
    device, client.device, client.card = client.device, other, 1
    client.subdevice = client.made(other, NV20_SUBDEVICE_0, bytes(4))
    bell = doorbell(client)
    second = Channel(Group(client), bell=bell)
    second.submit(acquire(0, 1, first.memory), release(1))
    time.sleep(0.01)
    first.submit(kernel(MS), release(0))
    assert second.wait(1) >= first.semaphore(0)[1]
    os.close(bell)
    client.device = device
    client.close()


def test_blocked_channel_does_not_block_its_group(new_client: NewClient) -> None:
    group = Group(new_client())
    stuck = Channel(group)
    free = Channel(group)
    stuck.submit(acquire(0, 1), kernel(MS), release(1))
    free.submit(kernel(MS), release(0))
    free.wait(0)
    free.submit(release(0, 1, stuck.memory))
    stuck.wait(1)


def test_timeline_cuts_what_still_runs(card: CardProcess, new_client: NewClient) -> None:
    channel = Channel(Group(new_client()))
    channel.submit(release(0), kernel(10 * S))
    start = channel.wait(0)
    since = 0
    ends: list[list[int]] = []
    for _ in range(3):
        time.sleep(0.002)
        told = timeline(card, 0, since)
        since = told.next
        ends += [entry[4:] for entry in told.entries if entry[:3] == ["run", "graphics", channel.group.tsg]]
    assert len(ends) >= 3
    assert ends[0][0] == start
    assert all(earlier[1] == later[0] for earlier, later in pairwise(ends))


def test_ended_client_stays_in_the_account(card: CardProcess, new_client: NewClient) -> None:
    client = new_client(0, 77)
    channel = Channel(Group(client))
    channel.submit(kernel(5 * MS), release(0))
    channel.wait(0)
    totals = channel.group.totals(card)
    client.free(channel.group.handle)
    (ended,) = [
        group
        for group in card_totals(card)["ended"]
        if group["group"] == channel.group.handle and group["client"] == client.root
    ]
    assert ended | {"pending": False, "open": True} == totals
    assert (ended["tgid"], ended["kernel_ns"], ended["file"]) == (77, 5 * MS, client.file.id)
