"""Programs that write what they like into the memory they share with the card, and end when they like."""

import os
import random
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from sim.cards import CardProcess
from tests.sim.card_channel import (
    COMMAND,
    COMMANDS_AT,
    GP_GET,
    GP_PUT,
    MEMORY_BYTES,
    MS,
    RING_AT,
    SEMAPHORES_AT,
    Channel,
    Group,
    S,
    acquire,
    card_totals,
    kernel,
    release,
    timeline,
)
from tests.sim.card_protocol import COPY_ENGINE, GET_TIMESLICE, GRAPHICS_ENGINE, OK, Client, Connection
from tests.support.rm_numbers import NVA06C_CTRL_CMD_SET_TIMESLICE
from tests.support.waiting import until

NewClient = Callable[..., Client]
# A call takes some microseconds; what a machine that is busy elsewhere adds to it, it adds to a quiet card's
# as well.
QUICK_NS = 10 * MS
TIMES_AS_SLOW = 20
# Of which nothing may wait for the end; a tenth of it is time enough for anything else.
LONG_NS = 100 * S


def works(client: Client) -> None:
    """A channel of another group executes."""
    channel = Channel(Group(client))
    channel.submit(release(0))
    channel.wait(0)
    client.free(channel.group.handle)
    client.free(channel.memory)


def errors(card: CardProcess, channel: Channel) -> int:
    return int(channel.group.totals(card)["errors"])


@contextmanager
def racing(act: Callable[[], None]) -> Iterator[None]:
    """Another thread that does it over and over."""
    stop = threading.Event()

    def run() -> None:
        while not stop.is_set():
            act()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def median_ns(act: Callable[[], object]) -> int:
    took = []
    for _ in range(51):
        before = time.monotonic_ns()
        act()
        took.append(time.monotonic_ns() - before)
    return sorted(took)[25]


def stays_quick(act: Callable[[], object], quiet_ns: int) -> None:
    """quiet_ns: the median without what is tried."""
    limit_ns = max(QUICK_NS, TIMES_AS_SLOW * quiet_ns)
    tries = [median_ns(act) for _ in range(3)]
    assert min(tries) < limit_ns, (tries, quiet_ns)


@pytest.mark.parametrize(
    "command",
    [
        COMMAND.pack(0, 0, 0, 0),
        COMMAND.pack(5, 0, 0, 0),
        COMMAND.pack(0xFFFFFFFF, 0, 0, 0),
        COMMAND.pack(4, 0, MEMORY_BYTES - 8, 1),
        COMMAND.pack(4, 0, MEMORY_BYTES, 1),
        COMMAND.pack(4, 0, (1 << 64) - 8, 1),
        COMMAND.pack(4, 0, SEMAPHORES_AT + 4, 1),
        COMMAND.pack(4, 0x4711, SEMAPHORES_AT, 1),
        COMMAND.pack(3, 0, (1 << 64) - 16, 1),
        COMMAND.pack(3, 0x4711, SEMAPHORES_AT, 1),
    ],
)
def test_bad_command_stops_its_channel_alone(
    card: CardProcess, new_client: NewClient, command: bytes
) -> None:
    group = Group(new_client())
    bad = Channel(group)
    good = Channel(group)
    bad.submit(release(0), command, release(1))
    bad.wait(0)
    bad.submit(release(2))
    good.submit(release(0))
    good.wait(0)
    assert bad.semaphore(1)[0] == bad.semaphore(2)[0] == 0
    assert errors(card, bad) == 1
    assert not group.totals(card)["pending"]


@pytest.mark.parametrize(
    ("at", "commands"),
    [
        (COMMANDS_AT + 4, 1),
        (MEMORY_BYTES - 16, 1),
        (MEMORY_BYTES, 1),
        (0xFFFFFFF8, 1),
        (COMMANDS_AT, (MEMORY_BYTES - COMMANDS_AT) // 24 + 1),
        (COMMANDS_AT, 0xFFFFFFFF),
    ],
)
def test_bad_entry_stops_its_channel(
    card: CardProcess, new_client: NewClient, at: int, commands: int
) -> None:
    client = new_client()
    channel = Channel(Group(client))
    channel.write_entry(at, commands)
    channel.ring()
    works(client)
    assert errors(card, channel) == 1


def test_empty_entries_and_the_last_commands_are_fine(card: CardProcess, new_client: NewClient) -> None:
    channel = Channel(Group(new_client()))
    channel.write_entry(COMMANDS_AT, 0)
    channel.write_entry(MEMORY_BYTES, 0)
    channel.bytes[MEMORY_BYTES - 24 :] = release(0)
    channel.write_entry(MEMORY_BYTES - 24, 1)
    channel.ring()
    channel.wait(0)
    assert errors(card, channel) == 0


@pytest.mark.parametrize("put", [65, 0x80000000, 0xFFFFFFFF])
def test_put_beyond_the_ring_stops_the_channel(card: CardProcess, new_client: NewClient, put: int) -> None:
    client = new_client()
    channel = Channel(Group(client), entries=64)
    struct.pack_into("<I", channel.bytes, GP_PUT, put)
    channel.ring()
    works(client)
    assert errors(card, channel) == 1
    assert channel.get == 0


def test_put_runs_freely_round_the_ring(card: CardProcess, new_client: NewClient) -> None:
    channel = Channel(Group(new_client()), entries=2)
    for i in range(50):
        channel.submit(release(i))
        channel.wait(i)
    assert (channel.get, errors(card, channel)) == (50, 0)


def test_longest_kernel_and_copy_do_not_overflow(card: CardProcess, new_client: NewClient) -> None:
    client = new_client()
    for command in (kernel((1 << 64) - 1), COMMAND.pack(2, 0, (1 << 64) - 1, 0)):
        channel = Channel(Group(client))
        channel.submit(release(0), command, release(1))
        channel.wait(0)
        works(client)
        assert channel.group.totals(card)["pending"]
        assert client.free(channel.group.handle) == OK


@pytest.mark.parametrize("seed", range(20))
def test_garbage_in_shared_memory(card: CardProcess, new_client: NewClient, seed: int) -> None:
    """All of it, from the first byte to the last, over and over, while the card reads."""
    choose = random.Random(seed)
    client = new_client()
    channels = [
        Channel(Group(client, choose.choice((GRAPHICS_ENGINE, COPY_ENGINE))), entries=64) for _ in range(4)
    ]
    deadline = time.monotonic() + 0.2
    while time.monotonic() < deadline:
        channel = choose.choice(channels)
        if choose.random() < 0.3:
            channel.bytes[:] = choose.randbytes(MEMORY_BYTES)
        for _ in range(choose.randrange(8)):
            op, memory = choose.randrange(6), choose.choice((0, 0, channels[0].memory, channel.handle))
            near = choose.choice((choose.randrange(1 << 20) * 8, choose.randrange(2000)))
            at = COMMANDS_AT + 24 * choose.randrange(64)
            channel.bytes[at : at + 24] = COMMAND.pack(op, memory, near, choose.randrange(4))
            channel.write_entry(at, choose.choice((0, 1, 1, 3, 1 << 31)))
        channel.ring()
        if choose.random() < 0.1:
            channel.group.schedule(enable=choose.random() < 0.7)
        if choose.random() < 0.1:
            client.free(channel.handle)
            channels[channels.index(channel)] = Channel(channel.group, entries=64)
    works(client)
    assert card_totals(card)["slipped_ns"] == 0


def test_memory_that_changes_while_it_is_read(card: CardProcess, new_client: NewClient) -> None:
    """PUT, ring entries, commands and semaphores flip under the card's eyes; others are not disturbed."""
    client, victim = new_client(), new_client()
    channel = Channel(Group(client), entries=64)
    choose = random.Random(1)

    def flip() -> None:
        struct.pack_into("<I", channel.bytes, GP_PUT, choose.choice((0, 1, 2, 63, 64, 65, 1 << 31)))
        struct.pack_into("<I", channel.bytes, GP_GET, choose.randrange(1 << 32))
        at = RING_AT + 8 * choose.randrange(64)
        struct.pack_into(
            "<II", channel.bytes, at, COMMANDS_AT + 8 * choose.randrange(64), choose.randrange(9)
        )
        op = choose.randrange(1, 5)
        channel.bytes[COMMANDS_AT : COMMANDS_AT + 24] = COMMAND.pack(op, 0, 8 * choose.randrange(1 << 17), 1)
        channel.ring()

    with racing(flip):
        for _ in range(40):
            works(victim)
            if errors(card, channel):
                assert client.free(channel.handle) == OK
                fresh = Channel(channel.group, entries=64)
                channel.handle, channel.bytes = fresh.handle, fresh.bytes


def flood(client: Client, command: bytes) -> Channel:
    """A ring of 4096 entries of 40 000 commands each, all of them of no duration."""
    channel = Channel(Group(client, enabled=False))
    count = (MEMORY_BYTES - COMMANDS_AT) // 24
    channel.bytes[COMMANDS_AT : COMMANDS_AT + 24 * count] = command * count
    for _ in range(4096):
        channel.write_entry(COMMANDS_AT, count)
    channel.group.schedule(enable=True)
    return channel


@pytest.mark.parametrize("command", [kernel(0), release(0), kernel(1)], ids=["kernels", "releases", "1 ns"])
def test_flood_of_empty_commands_does_not_hold_the_card(
    card: CardProcess, new_client: NewClient, command: bytes
) -> None:
    client, other = new_client(), new_client()
    group = Group(other)

    def call() -> None:
        other.control(GET_TIMESLICE, bytes(8), group.handle)

    quiet_ns = median_ns(call)
    hostile = flood(client, command)
    stays_quick(call, quiet_ns)
    works(other)
    totals = hostile.group.totals(card)
    assert totals["pending"]
    assert totals["run_ns"] > 0
    took = []
    for _ in range(5):
        before = time.monotonic_ns()
        hostile.group.schedule(enable=False)
        took.append(time.monotonic_ns() - before)
        hostile.group.schedule(enable=True)
    assert min(took) < 10 * max(QUICK_NS, TIMES_AS_SLOW * quiet_ns), took
    hostile.group.schedule(enable=False)


def test_flood_of_doorbells_does_not_hold_the_card(new_client: NewClient) -> None:
    client, other = new_client(), new_client()
    channel, group = Channel(Group(client)), Group(other)

    def call() -> None:
        other.control(GET_TIMESLICE, bytes(8), group.handle)

    quiet_ns = median_ns(call)
    with racing(channel.ring):
        stays_quick(call, quiet_ns)
        works(other)


def test_slices_of_a_microsecond_without_a_cost(card: CardProcess, new_client: NewClient) -> None:
    """Two groups that change places as fast as can be: the thread is not woken for each."""
    client = new_client()
    channels = [Channel(Group(client)) for _ in range(2)]

    def call() -> None:
        client.control(GET_TIMESLICE, bytes(8), channels[0].group.handle)

    quiet_ns = median_ns(call)
    for channel in channels:
        assert client.control(NVA06C_CTRL_CMD_SET_TIMESLICE, bytes(8), channel.group.handle)[0] == OK
        channel.submit(kernel(10 * S))
    time.sleep(0.05)
    stays_quick(call, quiet_ns)
    assert not timeline(card, 0, timeline(card).next).lost


@pytest.mark.parametrize("enabled", [True, False], ids=["executing", "disabled"])
@pytest.mark.parametrize("what", ["channel", "group", "client", "file"])
def test_group_freed_in_a_long_kernel_ends_at_once(
    card: CardProcess, new_client: NewClient, what: str, enabled: bool
) -> None:
    client, other = new_client(), new_client()
    channel = Channel(Group(client))
    group = channel.group
    channel.submit(release(0), kernel(LONG_NS), release(1))
    channel.wait(0)
    if not enabled:
        group.schedule(enable=False)
    handles = {"channel": channel.handle, "group": group.handle, "client": client.root}
    before = time.monotonic_ns()
    if what == "file":
        client.close()
        while any(entry["file"] == client.file.id for entry in engine_groups(card)):
            assert time.monotonic_ns() - before < LONG_NS // 2
            time.sleep(0.001)
    else:
        client.free(handles[what])
    assert time.monotonic_ns() - before < LONG_NS // 10
    works(other)
    assert channel.semaphore(1)[0] == 0
    if what == "channel":
        totals = group.totals(card)
    else:
        (totals,) = [gone for gone in card_totals(card)["ended"] if gone["tsg"] == group.tsg]
    assert (totals["kernels"], totals["pending"]) == (0, False)
    assert 0 < totals["run_ns"] < LONG_NS // 10


def engine_groups(card: CardProcess) -> list[dict[str, object]]:
    return [group for engine in card_totals(card)["engines"] for group in engine["groups"]]


def test_semaphore_memory_freed_while_a_channel_waits_for_it(
    card: CardProcess, new_client: NewClient
) -> None:
    client = new_client()
    producer, consumer = Channel(Group(client)), Channel(Group(client))
    consumer.submit(acquire(0, 1, producer.memory), release(0))
    time.sleep(0.01)
    assert client.free(producer.memory) == OK
    producer.submit(release(0))
    consumer.wait(0)
    consumer.submit(acquire(9, 1), release(1))
    time.sleep(0.01)
    assert client.free(consumer.handle) == OK
    consumer.submit(release(9))
    works(client)
    producer.submit(release(1, 1, producer.memory))
    works(client)
    assert errors(card, producer) == 1, "a name that is gone"


def test_idle_card_wakes_no_thread(card: CardProcess, new_client: NewClient) -> None:
    """No wake-up of any thread in half a second, with groups enabled, disabled, blocked and in a long
    kernel."""
    client = new_client()
    long, blocked, off = (Channel(Group(client)) for _ in range(3))
    off.group.schedule(enable=False)
    off.submit(kernel(MS))
    blocked.submit(acquire(0, 1))
    long.submit(kernel(LONG_NS))
    tasks = f"/proc/{card.process.pid}/task"

    def switches() -> dict[str, str]:
        return {
            task: next(line for line in open(f"{tasks}/{task}/status") if line.startswith("voluntary"))
            for task in os.listdir(tasks)
        }

    def none_for_half_a_second() -> bool:
        before = switches()
        time.sleep(0.5)
        return switches() == before

    # On a busy machine what came before may still be under way.
    until(none_for_half_a_second, "no thread wakes up")


def test_many_clients_leave_the_card_empty(card: CardProcess) -> None:
    """From threads, in the middle of everything; at the end nothing is left on the card."""

    def run(seed: int) -> None:
        choose = random.Random(seed)
        with Connection(card.card_socket) as connection:
            for _ in range(15):
                client = Client(connection, choose.randrange(2), tgid=seed)
                channels = [
                    Channel(Group(client, choose.choice((GRAPHICS_ENGINE, COPY_ENGINE)))) for _ in range(3)
                ]
                for channel in channels:
                    channel.submit(kernel(choose.randrange(3 * MS)), release(0))
                    channel.group.schedule(enable=choose.random() < 0.8)
                if choose.random() < 0.5:
                    channels[0].group.schedule(enable=True)
                    channels[0].wait(0)
                client.close()

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    until(lambda: engine_groups(card) == [], "nothing is left on the card")
