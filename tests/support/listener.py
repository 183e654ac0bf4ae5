"""A seccomp listener that answers notified calls with one errno, or lets them go on."""

import fcntl
import json
import os
import select
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# struct seccomp_notif and seccomp_notif_resp of linux/seccomp.h, and the ioctls that take them.
NOTIFICATION = struct.Struct("<QIIiIQ6Q")
ANSWER = struct.Struct("<QqiI")
RECEIVE = 0xC0502100
SEND = 0xC0182101
CONTINUE = 1
STATE_MAX_BYTES = 65536


class Listener:
    """What has been received: the runtimes' messages, and (audit architecture, number, command) of each
    call that was answered."""

    def __init__(self, errno: int, answers: Callable[[int], bool]) -> None:
        self.errno = errno
        self.answers = answers
        self.states: list[dict[str, Any]] = []
        self.calls: list[tuple[int, int, int]] = []
        self._stop_read, self._stop_write = os.pipe()

    def stop(self) -> None:
        os.close(self._stop_write)

    def serve(self, server: socket.socket) -> None:
        """Until `stop`: take the fds that runtimes send and answer their calls."""
        poll = select.poll()
        connections: list[socket.socket] = []
        fds: list[int] = []
        poll.register(self._stop_read, select.POLLIN)
        poll.register(server, select.POLLIN)
        while True:
            for fd, events in poll.poll():
                if fd == self._stop_read:
                    for held in [*fds, self._stop_read]:
                        os.close(held)
                    for connection in connections:
                        connection.close()
                    return
                if fd == server.fileno():
                    connection, _ = server.accept()
                    # Kept open: a runtime in the foreground keeps its end too and sends nothing more.
                    connections.append(connection)
                    fds += self._receive_state(connection)
                    poll.register(fds[-1], select.POLLIN)
                elif events & select.POLLIN:
                    self._answer(fd)
                else:
                    poll.unregister(fd)

    def _receive_state(self, connection: socket.socket) -> list[int]:
        message, fds, _, _ = socket.recv_fds(connection, STATE_MAX_BYTES, 1)
        self.states.append(json.loads(message))
        return fds

    def _answer(self, fd: int) -> None:
        notification = bytearray(NOTIFICATION.size)
        try:
            fcntl.ioctl(fd, RECEIVE, notification)
            call_id, _, _, number, architecture, _, *args = NOTIFICATION.unpack(notification)
            if not self.answers(args[1]):
                fcntl.ioctl(fd, SEND, ANSWER.pack(call_id, 0, 0, CONTINUE))
                return
            self.calls.append((architecture, number & 0xFFFFFFFF, args[1]))
            fcntl.ioctl(fd, SEND, ANSWER.pack(call_id, 0, -self.errno, 0))
        except FileNotFoundError:
            # The caller is gone.
            return


@contextmanager
def listening(path: Path, errno: int, answers: Callable[[int], bool]) -> Iterator[Listener]:
    """A listener on the stream socket path. answers: whether a command does not go on."""
    listener = Listener(errno, answers)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(os.fspath(path))
        server.listen()
        thread = threading.Thread(target=listener.serve, args=(server,))
        thread.start()
        try:
            yield listener
        finally:
            listener.stop()
            thread.join()
