"""A socket is seen without a connection to it."""

import os
import socket
from pathlib import Path

import pytest

from runtime_hook.bound import is_bound


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_SEQPACKET])
def test_socket_is_bound_until_its_program_ends_and_hears_of_nothing(
    kind: socket.SocketKind, tmp_path: Path
) -> None:
    path = tmp_path / "s"
    assert not is_bound(path)
    with socket.socket(socket.AF_UNIX, kind) as server:
        server.bind(os.fspath(path))
        server.listen(1)
        server.setblocking(False)
        assert is_bound(path)
        with pytest.raises(BlockingIOError):
            server.accept()
    assert path.exists()
    assert not is_bound(path)
