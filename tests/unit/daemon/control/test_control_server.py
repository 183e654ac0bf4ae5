"""What mgpud answers to whatever a peer sends."""

import asyncio
import json
import os
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from native_sched.daemon.control import server as control_server
from native_sched.daemon.control.server import MESSAGE_MAX_BYTES, Peer, Server, decode
from oci_specs import schemas
from oci_specs.refusal import Refusal

ROOT = Peer(os.getpid(), 0)


def validate(message: dict[str, Any]) -> None:
    schemas.validate("control", message)


@pytest.fixture
def server(tmp_path: Path) -> Server:
    def health(_message: Mapping[str, Any], _peer: Peer) -> dict[str, Any]:
        return {"fine": True}

    return Server(str(tmp_path / "s"), {"health": health, "bind": health}, validate)


def one_line(call: Callable[[], object]) -> bool:
    """Whether call refuses; what it says then is one line, and nothing else is ever raised."""
    try:
        call()
    except Refusal as refusal:
        said = refusal.line()
    else:
        return False
    assert "\n" not in said
    return True


def refusal(server: Server, data: bytes, peer: Peer = ROOT) -> str:
    reply = server.answer(data, peer)
    assert isinstance(reply, dict)
    assert reply["ok"] is False
    line = Refusal.from_error(reply["error"]).line()
    assert "\n" not in line
    return line


def test_good_request_gets_its_reply(server: Server) -> None:
    assert server.answer(b'{"version":1,"verb":"health"}', ROOT) == {"version": 1, "ok": True, "fine": True}


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "no object"),
        (b'{"verb":1}', "no object"),
        (b'{"verb":"health"}', 'version "None"'),
        (b'{"version":2,"verb":"health"}', 'version "2"'),
        (b'{"version":1,"verb":"explode"}', "it knows bind, health"),
        (b'{"version":1,"verb":"health","more":1}', "more"),
        (b'{"version":1,"verb":"bind","nonce":"n"}', "state"),
        (b'{"version":1,"verb":"bind","nonce":"n","state":[]}', "state"),
        (b"x" * (MESSAGE_MAX_BYTES + 1), f"at most {MESSAGE_MAX_BYTES} bytes"),
    ],
)
def test_bad_request_gets_one_line(server: Server, data: bytes, says: str) -> None:
    assert says in refusal(server, data)


def test_pid_that_another_process_has_by_then_is_not_believed(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that connected was in another namespace, and had ended when its message came."""
    is_reused = False

    async def ask() -> bytes:
        nonlocal is_reused
        serving = asyncio.create_task(server.serve())
        loop = asyncio.get_running_loop()
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as link:
            link.setblocking(False)
            link.connect(str(tmp_path / "s"))
            # This one, serve() with its accept() and its watch, and the session: that has looked once it
            # waits for the message.
            while len(asyncio.all_tasks()) < 5:
                await asyncio.sleep(0)
            await asyncio.sleep(0)
            is_reused = True
            await loop.sock_sendall(link, b'{"version":1,"verb":"health"}')
            reply = await loop.sock_recv(link, MESSAGE_MAX_BYTES)
        serving.cancel()
        return reply

    monkeypatch.setattr(control_server, "_same_namespace", lambda _pid, _kind: is_reused)
    server.listen()
    reply = json.loads(asyncio.run(ask()))
    server.close()
    assert reply["error"]["code"] == "not-allowed"


@pytest.mark.parametrize("peer", [Peer(os.getpid(), 1000), Peer(0, 0), Peer(2**30, 0)])
def test_peers_other_than_root_are_refused(server: Server, peer: Peer) -> None:
    assert "only root of this node" in refusal(server, b'{"version":1,"verb":"health"}', peer)


@given(st.binary(max_size=300) | st.text(max_size=300).map(str.encode))
def test_random_bytes_are_a_request_or_one_line(data: bytes) -> None:
    assert one_line(lambda: decode(data)) or isinstance(decode(data), dict)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(
    verb=st.sampled_from(
        ["admit", "bind", "release", "list", "health", "set", "policy", "timeline", "claims"]
    ),
    members=st.dictionaries(
        st.sampled_from(
            [
                *("nonce", "state", "env", "reach", "annotations", "bundle", "rootfs", "container_id"),
                *("container", "class", "core_percent", "memory_mib", "cards", "policy", "since"),
            ]
        ),
        json_values,
    ),
)
def test_random_members_pass_the_schema_or_are_one_line(verb: str, members: dict[str, Any]) -> None:
    message = decode(json.dumps({"version": 1, "verb": verb, **members}).encode())
    one_line(lambda: validate(message))


def test_socket_that_is_taken_away_is_served_anew(server: Server, tmp_path: Path) -> None:
    async def asked() -> bytes:
        link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        link.setblocking(False)
        with link:
            loop = asyncio.get_running_loop()
            await loop.sock_connect(link, str(tmp_path / "s"))
            await loop.sock_sendall(link, b'{"version":1,"verb":"health"}')
            return await loop.sock_recv(link, MESSAGE_MAX_BYTES)

    async def served() -> None:
        server.listen()
        serving = asyncio.create_task(server.serve())
        assert b"fine" in await asked()
        (tmp_path / "s").unlink()
        async with asyncio.timeout(20):
            while not (tmp_path / "s").exists():
                await asyncio.sleep(0.05)
        assert b"fine" in await asked()
        serving.cancel()

    asyncio.run(served())
    server.close()
