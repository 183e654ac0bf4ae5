"""Starting and stopping the card process, its sockets, and its exactness under load."""

import multiprocessing
import random
import signal
import socket
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from oci_specs import paths
from oci_specs.refusal import Refusal
from sim.cards import CardProcess, ask, running
from tests.sim.card_protocol import (
    ALLOC,
    ALLOC_STRUCT,
    EVENT,
    EVENT_SUBSCRIBED,
    IOCTL,
    NO_MEMORY,
    OK,
    REQUEST,
    ROOT_CLIENT,
    SUBSCRIBE,
    Client,
    Connection,
    heap_bytes,
    rm_cmd,
)
from tests.support.commands import attempt
from tests.support.rm_numbers import FERMI_VASPACE_A
from tests.support.waiting import until

MIB = 1 << 20


def test_sockets_are_private_and_removed_at_the_end(tmp_path: Path) -> None:
    with running(tmp_path, "h200") as card:
        for path in (card.card_socket, card.admin_socket):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert card.cards()[0].memory_mib == 143771
        card.process.send_signal(signal.SIGTERM)
        assert card.process.wait(60) == 0
    assert list(tmp_path.iterdir()) == []


def test_profiles_and_identity(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with running(tmp_path / "a", "v100-16,a10,a100-40,a100-80,h200:28") as card:
        cards = card.cards()
    with running(tmp_path / "b", "v100-16,a10,a100-40,a100-80,h200:28") as card:
        assert card.cards() == cards
    assert [c.memory_mib for c in cards[:5]] == [16160, 22731, 40536, 81251, 143771]
    assert cards[0].name == "Tesla V100-SXM2-16GB"
    assert cards[0].pci == "00000000:00:09.0"
    assert all(c.context_bytes < 256 * MIB for c in cards)
    for unique in ("uuid", "pci", "gpu_id", "minor"):
        assert len({getattr(c, unique) for c in cards}) == 32


@pytest.mark.parametrize(
    "profiles", ["", "v100", "v100-16:0", "v100-16:33", "a10:-1", "a10:", "a10:2x", "a10,", "h200:32,a10"]
)
def test_unknown_cards_are_refused_in_one_line(tmp_path: Path, profiles: str) -> None:
    with (
        pytest.raises(Refusal, match=r"--cards: .* profiles: v100-16 a10") as refused,
        running(tmp_path, profiles),
    ):
        pass
    assert "\n" not in refused.value.line()
    assert list(tmp_path.iterdir()) == []


def test_second_card_process_in_a_directory_is_refused(tmp_path: Path) -> None:
    with running(tmp_path, "a10") as first:
        with pytest.raises(Refusal, match="Address already in use"), running(tmp_path, "a10"):
            pass
        assert len(first.cards()) == 1
        first.process.kill()
    with running(tmp_path, "a10:2") as second:
        assert len(second.cards()) == 2


def test_bad_options_are_refused(tmp_path: Path) -> None:
    program = paths.libexec("mgpu-simcard")
    for arguments in (
        ["--dir", "/nowhere"],
        ["--nonsense"],
        ["--dir", str(tmp_path), "--cards", "a10", "--rm-call-us", "x"],
        ["--dir", str(tmp_path), "--cards", "a10", "--init-us", "60000001"],
        ["--dir", str(tmp_path), "--cards", "a10", "--context-us", "-1"],
    ):
        ended = attempt(program, *arguments)
        assert (ended.status, ended.out) == (2, "")
    assert "No such file" in attempt(program, "--dir", tmp_path / "none", "--cards", "a10").err


def test_admin_questions(card: CardProcess) -> None:
    assert ask(card.admin_socket, "driver")["driver_version"] == "580.95.05"
    assert "error" in ask(card.admin_socket, "nonsense")
    with Connection(card.card_socket) as connection:
        client = Client(connection, tgid=4)
        listed = ask(card.admin_socket, "files")
        assert {"file": client.file.id, "node": "ctl", "tgid": 4, "minor": None} in listed
        client.close()


def test_card_is_added_while_it_serves(tmp_path: Path) -> None:
    with running(tmp_path, "a10") as card:
        assert ask(card.admin_socket, "add t4") == {"minor": 1}
        for nothing in ("add", "add ", "add none", "add t4:2"):
            assert "error" in ask(card.admin_socket, nothing)
        assert [(each.minor, each.profile) for each in card.cards()] == [(0, "a10"), (1, "t4")]
        with Connection(card.card_socket) as connection:
            client = Client(connection, 1)
            assert client.memory(MIB)[0] == OK
            assert card.account().cards[1].used_bytes == MIB
            client.close()


def test_reloaded_driver_has_its_cards_and_nothing_else(tmp_path: Path) -> None:
    with running(tmp_path, "a10") as card, Connection(card.card_socket) as connection:
        before = ask(card.admin_socket, "cards")
        Client(connection, 0).memory(MIB)
        ask(card.admin_socket, "lose 0")
        for question, profiles in (
            ("reload", ["a10"]),
            ("reload t4,a10", ["t4", "a10"]),
            ("reload", ["t4", "a10"]),
        ):
            assert ask(card.admin_socket, question) == {"reloaded": True}
            until(lambda: _serves_only(card, profiles), "it serves again")  # noqa: B023
        assert "error" in ask(card.admin_socket, "reload none")
        assert connection.socket.recv(1) == b""
        ask(card.admin_socket, "reload a10")
        until(lambda: list(_listed(card)) == ["a10"], "it serves again")
        assert ask(card.admin_socket, "cards") == before


def _listed(card: CardProcess) -> dict[str, bool]:
    """Whether each is lost, by profile; nothing while it is reloaded."""
    with suppress(Refusal):
        return {each.profile: each.lost for each in card.cards()}
    return {}


def _serves_only(card: CardProcess, profiles: Sequence[str]) -> bool:
    """And no files. One that is about to end may answer one question and not the next."""
    with suppress(Refusal):
        return _listed(card) == dict.fromkeys(profiles, False) and ask(card.admin_socket, "files") == []
    return False


def test_card_serves_many_connections_files_and_objects(card: CardProcess) -> None:
    """300 connections, 4200 files, 20 000 objects at once."""
    _wait_empty(card)
    connections = [Connection(card.card_socket) for _ in range(300)]
    files = [connections[i % 300].open() for i in range(4200)]
    assert len({file.ino for file in files}) == 4200
    assert len(ask(card.admin_socket, "files")) == 4200
    clients = [Client(connection, 2) for connection in connections[:20]]
    for client in clients:
        for _ in range(1000):
            client.made(client.device, FERMI_VASPACE_A, bytes(48))
    assert clients[0].memory(MIB)[0] == OK
    assert card.account().cards[2].used_bytes == MIB
    for connection in connections:
        connection.close()


def _random_tenant(card_socket: Path, seed: int, operations: int, report: socket.socket) -> None:
    """Allocates and frees at random, tells what it holds, and waits for a byte before it ends."""
    choose = random.Random(seed)
    with Connection(card_socket) as connection:
        client = Client(connection, seed % 2, tgid=1000 + seed)
        live: dict[int, int] = {}
        for _ in range(operations):
            if live and choose.random() < 0.5:
                handle = choose.choice(list(live))
                assert client.free(handle) == OK
                del live[handle]
                continue
            size = choose.randrange(1, 400 * MIB)
            status, handle = client.memory(size)
            assert status in (OK, NO_MEMORY)
            if status == OK:
                live[handle] = heap_bytes(size)
        report.send(sum(live.values()).to_bytes(8, "little"))
        report.recv(1)
        client.close()


def test_100_000_operations_from_64_processes_are_counted_exactly(card: CardProcess) -> None:
    """At every look the heap's count equals the sum of live objects; at the end also what the processes
    hold."""
    context = multiprocessing.get_context("fork")
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    operations = 100_000 // 64 + 1
    tenants = [
        context.Process(target=_random_tenant, args=(card.card_socket, seed, operations, theirs))
        for seed in range(64)
    ]
    for tenant in tenants:
        tenant.start()
    theirs.close()
    ours.settimeout(0.05)
    reports: list[int] = []
    while len(reports) < 64:
        for index, one in enumerate(card.account().cards):
            assert one.used_bytes == sum(use.bytes for use in one.files)
            assert one.used_bytes <= card.cards()[index].memory_mib * MIB
        try:
            reports.append(int.from_bytes(ours.recv(8), "little"))
        except TimeoutError:
            assert all(tenant.exitcode is None for tenant in tenants)
    assert sum(one.used_bytes for one in card.account().cards) == sum(reports) > 0
    for _ in tenants:
        ours.send(b"x")
    for tenant in tenants:
        tenant.join(60)
        assert tenant.exitcode == 0
    _wait_empty(card)


def _wait_empty(card: CardProcess) -> None:
    until(lambda: not ask(card.admin_socket, "files"), "no file is open")
    assert all(one.used_bytes == 0 for one in card.account().cards)


def test_subscriber_killed_while_it_waits_holds_nobody_up(tmp_path: Path) -> None:
    """As an mgpud that is killed while the calls of the one before, killed too, are still under way."""
    outer = ALLOC_STRUCT.pack(0, 0, 0, ROOT_CLIENT, 0, 0, 0, 0, 0, 0)
    subscription = REQUEST.pack(SUBSCRIBE, *[0] * 9)
    with running(tmp_path, "a10", rm_call_us=300_000) as card:
        with Connection(card.card_socket) as calls:
            file, cmd = calls.open().id, rm_cmd(ALLOC, len(outer))
            calls.socket.send(REQUEST.pack(IOCTL, 0, 0, cmd, file, 0, 1, len(outer), 0, 0) + outer)
        for _ in range(2):
            with Connection(card.card_socket) as killed:
                killed.socket.send(subscription)
        with Connection(card.card_socket) as events:
            events.socket.send(subscription)
            assert EVENT.unpack(events.socket.recv(64)) == (EVENT_SUBSCRIBED, 0, 0)
