"""A question by HTTP on a Unix socket, and the one that is asked of Docker."""

import http.client
import json
import socket
from typing import Any

DOCKER = "/run/docker.sock"
# Nothing that is asked for people may take longer.
TIMEOUT_S = 1.2


class UnixConnection(http.client.HTTPConnection):
    """timeout_s: of each step of connecting, sending and receiving."""

    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def get(path: str, url: str) -> Any:
    """The answer's JSON. OSError, HTTPException or ValueError where there is none."""
    connection = UnixConnection(path, TIMEOUT_S)
    try:
        connection.request("GET", url)
        reply = connection.getresponse()
        if reply.status != http.client.OK:
            raise http.client.HTTPException(f"it answers {reply.status} {reply.reason}")
        return json.loads(reply.read())
    finally:
        connection.close()


def docker_names(path: str = DOCKER) -> dict[str, str]:
    """By id, of its containers, those that have ended too. Errors as get() has them, also TypeError and
    LookupError.
    """
    return {each["Id"]: each["Names"][0].lstrip("/") for each in get(path, "/containers/json?all=1")}
