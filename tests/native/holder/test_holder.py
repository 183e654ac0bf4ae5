"""What container runtimes send to the holder, and what becomes of it."""

import os
import signal
import socket
import time

import pytest

from tests.support.holder import Holder, message, receive, send, stand_in
from tests.support.waiting import until


def test_listeners_from_before_and_after_mgpud_are_handed_over(holder: Holder) -> None:
    before, known = stand_in()
    with holder.runtime() as runtime:
        send(runtime, message("before"), [before])
        mgpud = holder.mgpud()
        [first] = receive(mgpud, 1)
        assert (first.container_id, first.metadata, first.status) == ("before", "nonce", "creating")
        assert first.file == known
    after, known = stand_in()
    with holder.runtime() as runtime:
        send(runtime, message("after"), [after])
        [second] = receive(mgpud, 1)
        assert (second.container_id, second.file) == ("after", known)
    assert first.holder_id != second.holder_id
    mgpud.close()


def test_connection_kept_open_does_not_delay_the_listener(holder: Holder) -> None:
    """Foreground runc run keeps it open for the container's life."""
    mgpud = holder.mgpud()
    with holder.runtime() as runtime:
        send(runtime, message(), [stand_in()[0]])
        assert len(receive(mgpud, 1)) == 1
    mgpud.close()


def test_listener_of_an_exited_runtime_is_kept(holder: Holder) -> None:
    """A detached exec ends right after its message, and the holder may have to wait for a processor."""
    mgpud = holder.mgpud()
    os.kill(holder.process.pid, signal.SIGSTOP)
    try:
        pid = os.fork()
        if pid == 0:
            try:
                with holder.runtime() as runtime:
                    send(runtime, message("brief"), [stand_in()[0]])
            finally:
                os._exit(0)
        os.waitpid(pid, 0)
    finally:
        os.kill(holder.process.pid, signal.SIGCONT)
    [listener] = receive(mgpud, 1)
    assert listener.container_id == "brief"
    mgpud.close()


def test_message_in_pieces(holder: Holder) -> None:
    mgpud = holder.mgpud()
    text = message("pieces")
    with holder.runtime() as runtime:
        send(runtime, text[:1], [stand_in()[0]])
        for byte in text[1:]:
            runtime.send(bytes([byte]))
        assert receive(mgpud, 1)[0].container_id == "pieces"
    mgpud.close()


def test_dropped_listener_is_closed_and_not_handed_over_again(holder: Holder) -> None:
    files = holder.open_files()
    mgpud = holder.mgpud()
    with holder.runtime() as runtime:
        send(runtime, message(), [stand_in()[0]])
        [listener] = receive(mgpud, 1)
    mgpud.drop(listener.holder_id)
    until(lambda: holder.open_files() == files + 2, "its copy is closed")
    mgpud.close()
    again = holder.mgpud()
    again.read_all(lambda _listener: pytest.fail("it is still held"))
    again.close()


BAD = {
    "not-json": b"hello",
    "an-array": b"[1]",
    "no-fd": message(),
    "too-long": b'{"a":"' + b"x" * 70000 + b'"}',
}


@pytest.mark.parametrize("data", BAD.values(), ids=BAD.keys())
def test_bad_messages_are_dropped_and_the_next_is_served(holder: Holder, data: bytes) -> None:
    files = holder.open_files()
    with holder.runtime() as runtime:
        try:
            runtime.sendall(data)
            runtime.shutdown(socket.SHUT_WR)
        except BrokenPipeError:
            pass
        until(lambda: holder.open_files() == files, "the connection is closed")
    mgpud = holder.mgpud()
    with holder.runtime() as runtime:
        send(runtime, message("good"), [stand_in()[0]])
        assert [listener.container_id for listener in receive(mgpud, 1)] == ["good"]
    mgpud.close()


def test_surplus_descriptors_are_closed(holder: Holder) -> None:
    files = holder.open_files()
    mgpud = holder.mgpud()
    with holder.runtime() as runtime:
        send(runtime, message(), [stand_in()[0] for _ in range(4)])
        [listener] = receive(mgpud, 1)
    mgpud.drop(listener.holder_id)
    until(lambda: holder.open_files() == files + 2, "no copy is left")
    mgpud.close()


def test_runtime_that_says_nothing_does_not_stop_others(holder: Holder) -> None:
    with holder.runtime(), holder.runtime() as runtime:
        mgpud = holder.mgpud()
        send(runtime, message(), [stand_in()[0]])
        assert len(receive(mgpud, 1)) == 1
        mgpud.close()


def test_listeners_without_a_container_state_are_given_back(holder: Holder) -> None:
    files = holder.open_files()
    mgpud = holder.mgpud()
    with holder.runtime() as runtime:
        send(runtime, b'{"state": {}}', [stand_in()[0]])
        until(lambda: mgpud.read(lambda _listener: pytest.fail("it names no container")), "it is read")
        time.sleep(0.1)
        mgpud.read(lambda _listener: pytest.fail("it names no container"))
    until(lambda: holder.open_files() == files + 2, "no copy is left")
    mgpud.close()


def test_runtime_may_make_its_filter_after_it_has_connected(holder: Holder) -> None:
    """As crun does; twenty starts on a busy machine took it more than five seconds."""
    fd, _ = stand_in()
    with holder.runtime() as runtime:
        time.sleep(6)
        send(runtime, message(), [fd])
        until(lambda: holder.status().listeners == 1, "it is held")


def test_listener_that_hangs_up_is_not_kept(holder: Holder) -> None:
    files = holder.open_files()
    read, write = os.pipe()
    with holder.runtime() as runtime:
        send(runtime, message(), [read])
        until(lambda: holder.open_files() == files + 1, "it is held")
    os.close(write)
    until(lambda: holder.open_files() == files, "it is closed")


def test_messages_are_kept_up_to_a_bound_and_what_is_held_stays(holder: Holder) -> None:
    """16 MiB of them, whatever their number; 64 KiB each."""
    long = message("long", annotations={"x": "y" * 65000})
    fd, _ = stand_in()
    count = (16 << 20) // len(long)
    for _ in range(count + 1):
        with holder.runtime() as runtime:
            runtime.settimeout(10)
            socket.send_fds(runtime, [long[:1]], [fd])
            runtime.sendall(long[1:])
    os.close(fd)
    until(lambda: f"listener refused: {count} are held already" in holder.log(), "one too many is refused")
    assert holder.status().listeners == count


def test_closed_connections_make_room_first(holder: Holder) -> None:
    before = holder.open_files()
    silent = [holder.runtime() for _ in range(128)]
    until(lambda: holder.open_files() == before + 128, "all are connected")
    os.kill(holder.process.pid, signal.SIGSTOP)
    try:
        holder.arrives("after")
        for runtime in silent:
            runtime.close()
    finally:
        os.kill(holder.process.pid, signal.SIGCONT)
    until(lambda: holder.status().listeners == 1, "the next is served")


def test_surplus_runtimes_are_disconnected(holder: Holder) -> None:
    silent = [holder.runtime() for _ in range(129)]
    silent[-1].settimeout(10)
    assert silent[-1].recv(1) == b""
    for runtime in silent:
        runtime.close()
    holder.arrives("after")
    until(lambda: holder.status().listeners == 1, "the next is served")
