"""What `mgpu web` answers to whom, and how it is started."""

import http.client
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from mgpu_cli.web import server
from mgpu_cli.web.server import CONNECTIONS_MAX, WebServer, is_loopback
from oci_specs.refusal import Refusal
from tests.support.waiting import readable
from tests.unit.cli_support import FakeMgpud, mgpu

TOKEN = "0123456789abcdef"
HOME = ("127.0.0.1", 0)


def log_of(container: str) -> bytes:
    if container == "nowhere":
        raise Refusal("no-log", "there is no log", "")
    return container.encode()


@contextmanager
def served(token: str = "", address: tuple[str, int] | Path = HOME) -> Iterator[WebServer]:
    with WebServer(address, lambda: b"[1]", log_of, token) as made:
        thread = threading.Thread(target=made.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield made
        finally:
            made.shutdown()
            thread.join()


def place(made: WebServer) -> tuple[str, int]:
    host, port = made.server_address[:2]
    return str(host), int(port)


def ask(
    made: WebServer, path: str, method: str = "GET", **headers: str
) -> tuple[int, http.client.HTTPMessage, bytes]:
    link = http.client.HTTPConnection(*place(made), timeout=30)
    link.request(method, path, headers=headers)
    reply = link.getresponse()
    found = reply.status, reply.headers, reply.read()
    link.close()
    return found


def raw(made: WebServer, text: bytes) -> bytes:
    with socket.create_connection(place(made), timeout=30) as link:
        link.sendall(text)
        link.shutdown(socket.SHUT_WR)
        return link.makefile("rb").read()


def test_page_of_nodes_is_under_the_same_rules() -> None:
    with WebServer(HOME, lambda: b"[1]", log_of, TOKEN, "cluster.html") as made:
        thread = threading.Thread(target=made.serve_forever, args=(0.01,))
        thread.start()
        try:
            assert b"cluster.js" in ask(made, "/")[2]
            assert b'"./asking.js"' in ask(made, "/cluster.js")[2]
            assert ask(made, "/now")[0] == 401
            assert ask(made, "/now", Authorization=f"Bearer {TOKEN}")[2] == b"[1]"
        finally:
            made.shutdown()
            thread.join()


def test_page_and_what_it_asks_for_are_served() -> None:
    with served() as made:
        status, headers, page = ask(made, "/")
        assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
        for name in ("page.css", "page.js", "icon.svg"):
            assert f'"{name}"'.encode() in page
            assert ask(made, f"/{name}")[0] == 200
        for name in ("draw.js", "story.js"):
            assert f'"./{name}"'.encode() in ask(made, "/page.js")[2]
            assert ask(made, f"/{name}")[1]["Content-Type"] == "text/javascript; charset=utf-8"
        assert ask(made, "/now")[2] == b"[1]"
        assert ask(made, "/log?container=a%2Fb")[2] == b"a/b"
        assert ask(made, "/log?container=nowhere")[::2] == (404, b"there is no log")
        assert ask(made, "/../server.py")[0] == ask(made, "/server.py")[0] == 404


def test_pages_run_no_script_but_their_own() -> None:
    with served() as made:
        for path in ("/", "/now", "/nowhere"):
            headers = ask(made, path)[1]
            policy = headers["Content-Security-Policy"].split("; ")
            assert "default-src 'self'" in policy
            assert "unsafe" not in headers["Content-Security-Policy"]
            assert headers["X-Content-Type-Options"] == "nosniff"
            assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
            assert headers["Cache-Control"] == "no-store"
            assert headers["Server"].strip() == "mgpu"
        page = ask(made, "/")[2]
        assert b"style=" not in page
        assert b"onclick" not in page
        assert b"://" not in page
        scripts = b"".join(ask(made, f"/{name}.js")[2] for name in ("page", "draw", "story"))
        for word in (b"innerHTML", b"outerHTML", b"insertAdjacentHTML", b"document.write", b"eval("):
            assert word not in scripts


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD"])
def test_nothing_is_asked_for_but_to_read(method: str) -> None:
    with served() as made:
        status, headers, _ = ask(made, "/now", method)
        assert status == 501
        assert "Content-Security-Policy" in headers


@pytest.mark.parametrize(
    ("host", "ours"),
    [
        ("localhost:9412", True),
        ("127.0.0.1", True),
        ("127.0.0.2:80", True),
        ("[::1]:9412", True),
        ("", True),
        ("evil.example", False),
        ("localhost.evil.example", False),
        ("127.0.0.1.evil.example:9412", False),
        ("10.0.0.1:9412", False),
        ("[::1", False),
        ("[evil]", False),
    ],
)
def test_another_name_that_leads_here_is_told_nothing(host: str, ours: bool) -> None:
    assert is_loopback(host) is ours
    with served() as made:
        for path in ("/", "/now", "/log?container=x"):
            assert ask(made, path, Host=host)[0] == (200 if ours else 403)


def test_what_is_of_the_node_needs_the_token() -> None:
    with served(TOKEN) as made:
        assert ask(made, "/", Host="node.example")[0] == 200
        for path in ("/now", "/log?container=x", "/nowhere"):
            for given in ({}, {"Authorization": "Bearer "}, {"Authorization": f"Bearer {TOKEN}x"}):
                assert ask(made, path, **given)[::2] == (401, b"bring the token\n")
            assert ask(made, f"{path}?token={TOKEN}")[0] == 401
        assert ask(made, "/now", Authorization="Bearer \xe4")[0] == 401
        assert ask(made, "/now", Authorization=f"Bearer {TOKEN}", Host="node.example")[2] == b"[1]"


@pytest.mark.parametrize(
    "text",
    [
        b"\r\n\r\n",
        b"GET http://[ HTTP/1.1\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /" + b"a" * 70000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 200 + b"\r\n",
        b"\xff\x00 / HTTP/1.1\r\n\r\n",
        b"GET /\x1b[2J HTTP/1.1\r\n\r\n",
    ],
)
def test_what_is_no_request_harms_nobody(text: bytes, capfd: pytest.CaptureFixture[str]) -> None:
    with served() as made:
        with suppress(ConnectionError):
            assert b" 200 " not in raw(made, text).partition(b"\n")[0]
        assert ask(made, "/now")[0] == 200
    assert capfd.readouterr().err == ""


def test_clients_that_say_nothing_keep_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server._Session, "timeout", 1000.0)
    with served() as made, ExitStack() as slow:
        links = [
            slow.enter_context(socket.create_connection(place(made))) for _ in range(2 * CONNECTIONS_MAX)
        ]
        assert ask(made, "/now")[0] == 200
        assert readable(links[0], 30_000), "the oldest is hung up on"
        assert links[0].recv(1) == b""


def test_client_that_is_slow_is_hung_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 1 < server._Session.timeout <= 10
    monkeypatch.setattr(server._Session, "timeout", 0.05)
    with served() as made, socket.create_connection(place(made)) as link:
        link.sendall(b"GET /now HT")
        assert readable(link, 30_000)
        assert link.recv(1) == b""


def test_socket_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "web.sock"
    with served(address=path), socket.socket(socket.AF_UNIX) as link:
        assert path.stat().st_mode & 0o777 == 0o600
        link.connect(os.fspath(path))
        link.sendall(b"GET /now HTTP/1.0\r\nHost: localhost:9412\r\n\r\n")
        assert link.makefile("rb").read().endswith(b"[1]")


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"])
def test_beyond_loopback_it_wants_a_token(mgpud: FakeMgpud, address: str) -> None:
    done = mgpu("web", "--listen", address)
    assert done.exit_code == 1
    assert "can be reached from elsewhere; give --token-file" in done.stderr


@pytest.mark.parametrize("address", ["9412", "node:80", "127.0.0.1", "127.0.0.1:x"])
def test_address_is_an_address(mgpud: FakeMgpud, address: str) -> None:
    assert mgpu("web", "--listen", address).exit_code == 2


@pytest.mark.parametrize(
    ("text", "mode", "why"),
    [
        ("short", 0o600, "holds no word of 16"),
        ("ä" * 20, 0o600, "holds no word of 16"),
        ("a b\n" * 20, 0o600, "holds no word of 16"),
        (TOKEN, 0o644, "can be read by others; chmod 600"),
    ],
)
def test_token_is_one(mgpud: FakeMgpud, tmp_path: Path, text: str, mode: int, why: str) -> None:
    file = tmp_path / "token"
    file.write_text(text)
    file.chmod(mode)
    done = mgpu("web", "--token-file", str(file))
    assert done.exit_code == 1
    assert why in done.stderr


def test_address_that_is_taken_is_a_refusal(mgpud: FakeMgpud, tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(HOME)
        other.listen()
        done = mgpu("web", "--listen", f"127.0.0.1:{other.getsockname()[1]}")
    assert (done.exit_code, done.stderr.count("\n")) == (1, 1)
    assert "cannot listen there" in done.stderr
    assert mgpu("web", "--listen", f"unix:{tmp_path}/nowhere/web.sock").exit_code == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_when_told_and_takes_its_socket_along(
    mgpud: FakeMgpud, tmp_path: Path, number: signal.Signals
) -> None:
    path = tmp_path / "web.sock"
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(os.fspath(path))
    argv = [
        sys.executable,
        "-c",
        "from mgpu_cli.main import main; main()",
        "web",
        "--listen",
        f"unix:{path}",
    ]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert f"serving on {path}" in process.stdout.readline()
        process.send_signal(number)
        assert process.stderr.read() == ""
    assert process.returncode == 0
    assert not path.exists()
