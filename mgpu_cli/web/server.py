"""Serves the page and what it shows by HTTP, and nothing that changes anything."""

import hmac
import os
import socket
import socketserver
import sys
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from importlib.resources import files
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from oci_specs.refusal import Refusal

# Nothing in them is of this node, so readers without a token may have them.
_PAGES = {
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
    "/asking.js": ("asking.js", "text/javascript"),
    "/draw.js": ("draw.js", "text/javascript"),
    "/story.js": ("story.js", "text/javascript"),
    "/cluster.js": ("cluster.js", "text/javascript"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
# A client that is slow, or many of them, keep nobody else waiting: beyond these the oldest is hung up on.
CONNECTIONS_MAX = 32
_TIMEOUT_S = 10.0


class WebServer(socketserver.ThreadingTCPServer):
    """now, log: what /now and /log?container=ID answer. token: what a reader has to bring; empty: nothing.

    page: which of the two pages is at /.
    """

    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    request_queue_size = 4 * CONNECTIONS_MAX

    def __init__(
        self,
        address: tuple[str, int] | Path,
        now: Callable[[], bytes],
        log: Callable[[str], bytes],
        token: str,
        page: str = "page.html",
    ) -> None:
        self.now, self.log, self.token = now, log, token.encode()
        self.pages = {**_PAGES, "/": (page, "text/html")}
        self._open: deque[Any] = deque()
        self._lock = threading.Lock()
        if isinstance(address, Path):
            self.address_family = socket.AF_UNIX
            before = os.umask(0o177)
            try:
                super().__init__(os.fspath(address), _Session)  # type: ignore[arg-type]
            finally:
                os.umask(before)
        else:
            self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
            super().__init__(address, _Session)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._open.append(request)
            oldest = self._open.popleft() if len(self._open) > CONNECTIONS_MAX else None
        if oldest is not None:
            with suppress(OSError):
                oldest.shutdown(socket.SHUT_RDWR)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock, suppress(ValueError):
            self._open.remove(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], OSError):  # a client that went away, or that was too slow
            super().handle_error(request, client_address)


class _Session(BaseHTTPRequestHandler):
    server: WebServer
    timeout = _TIMEOUT_S
    server_version, sys_version = "mgpu", ""

    def do_GET(self) -> None:
        try:
            asked = urlsplit(self.path)
        except ValueError:
            self.send_error(HTTPStatus.BAD_REQUEST)
            return
        page = self.server.pages.get(asked.path)
        if not self.server.token and not is_loopback(self.headers.get("Host", "")):
            self._answer(HTTPStatus.FORBIDDEN, b"ask for localhost\n")
        elif page:
            content = files("mgpu_cli.web").joinpath(page[0]).read_bytes()
            self._answer(HTTPStatus.OK, content, page[1])
        elif not self._has_token():
            self._answer(HTTPStatus.UNAUTHORIZED, b"bring the token\n")
        elif asked.path == "/now":
            self._answer(HTTPStatus.OK, self.server.now(), "application/json")
        elif asked.path == "/log":
            self._tell_log(parse_qs(asked.query).get("container", [""])[0])
        else:
            self._answer(HTTPStatus.NOT_FOUND, b"there is nothing\n")

    def _tell_log(self, container: str) -> None:
        try:
            self._answer(HTTPStatus.OK, self.server.log(container), "application/json")
        except Refusal as refusal:
            self._answer(HTTPStatus.NOT_FOUND, refusal.message.encode())

    def _has_token(self) -> bool:
        given = self.headers.get("Authorization", "").removeprefix("Bearer ")
        return hmac.compare_digest(given.encode(), self.server.token) or not self.server.token

    def _answer(self, status: HTTPStatus, body: bytes, kind: str = "text/plain") -> None:
        self.send_response(status)
        of_body = {"Content-Type": f"{kind}; charset=utf-8", "Content-Length": str(len(body))}
        for name, value in (_HEADERS | of_body).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def send_error(self, code: int, _message: str | None = None, _explain: str | None = None) -> None:
        self._answer(HTTPStatus(code), HTTPStatus(code).phrase.encode() + b"\n")

    def log_message(self, _format: str, *_args: object) -> None:
        """Each reader asks once a second."""


def is_loopback(host: str) -> bool:
    """Whether a Host header names this machine as itself: another name may lead here by its owner's DNS, and
    that owner's pages must not read ours. Without one it is no browser.
    """
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name in ("", "localhost") or ip_address(name).is_loopback
    except ValueError:
        return False
