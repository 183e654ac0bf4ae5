"""mgpu-hook: what it sends, what it makes of the reply, and how it fails."""

import json
import os
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.create_path import NONCE, Mgpud, ok, one_line, program, refused
from tests.support.commands import attempt

pytestmark = pytest.mark.usefixtures("create_path_programs")

STATE = '{"ociVersion":"1.0.2", "id":"c1", "pid":12,\n "bundle":"/b", "annotations":{"a":"\\u00e9 \\"}{"}}'


def hook(verb: str, path: Path, state: str | bytes = STATE) -> subprocess.CompletedProcess[str]:
    command = [program("mgpu-hook"), verb, "--socket", str(path), "--grant", NONCE]
    data = state if isinstance(state, bytes) else state.encode()
    done = subprocess.run(command, input=data, capture_output=True, timeout=60, check=False)
    assert done.stdout == b""
    return subprocess.CompletedProcess(command, done.returncode, "", done.stderr.decode())


@pytest.mark.parametrize("verb", ["bind", "release"])
def test_sends_the_state_as_it_came(tmp_path: Path, verb: str) -> None:
    with Mgpud(tmp_path / "s", lambda _: ok()) as mgpud:
        done = hook(verb, tmp_path / "s")
    assert (done.returncode, done.stderr) == (0, "")
    assert mgpud.requests == [{"version": 1, "verb": verb, "nonce": NONCE, "state": json.loads(STATE)}]


def test_refusal_is_shown_word_for_word(tmp_path: Path) -> None:
    message, hint = 'the GPU "é😀\\n" is\nfull', "use\tanother"
    with Mgpud(tmp_path / "s", lambda _: refused(message, hint)):
        done = hook("bind", tmp_path / "s")
    assert done.returncode == 1
    assert one_line(done.stderr) == r'mgpu: the GPU "é😀\n" is\x0afull; use\x09another'


def test_refused_release_does_not_fail_a_delete(tmp_path: Path) -> None:
    with Mgpud(tmp_path / "s", lambda _: refused("no", "so")):
        done = hook("release", tmp_path / "s")
    assert (done.returncode, done.stderr) == (0, "mgpu: no; so\n")


@pytest.mark.parametrize(("verb", "status"), [("bind", 1), ("release", 0)])
def test_mgpud_not_running(tmp_path: Path, verb: str, status: int) -> None:
    done = hook(verb, tmp_path / "s")
    assert done.returncode == status
    line = f"mgpu: mgpud is not running: no answer on {tmp_path}/s (no such socket); "
    assert one_line(done.stderr).startswith(line)


def test_mgpud_left_its_socket_behind(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as gone:
        gone.bind(str(tmp_path / "s"))
    assert "mgpud is not running" in one_line(hook("bind", tmp_path / "s").stderr)


REPLIES: list[tuple[Any, str]] = [
    (None, "mgpud is not running: no answer on"),
    (b"", "mgpud is not running: no answer on"),
    (b"{", "mgpud's reply is not a JSON object (1 bytes)"),
    (b"[]", "mgpud's reply is not a JSON object (2 bytes)"),
    (b'{"ok":true} x', "mgpud's reply is not a JSON object (13 bytes)"),
    (b'{"ok":true,}', "mgpud's reply is not a JSON object (12 bytes)"),
    (b'{"ok":true' + b"[" * 100 + b"}", "mgpud's reply is not a JSON object"),
    (b'{"ok":' + b"[" * 100 + b"]" * 100 + b"}", "mgpud's reply is not a JSON object"),
    (b"{}", "mgpud refused and did not say why"),
    (b'{"ok":"true"}', "mgpud refused and did not say why"),
    (b'{"nested":{"ok":true}}', "mgpud refused and did not say why"),
    (b'{"ok":false,"error":"text"}', "mgpud refused and did not say why"),
    (b'{"ok":false,"error":{"message":5,"hint":[]}}', "mgpud refused and did not say why"),
    (b'{"ok":false,"error":{"message":"a\\ud800b\\u0000"}}', "a?b?; "),
    (b'{"ok":false,"error":{"message":"' + b"m" * 5000 + b'"}}', "m" * 600),
    (b" " * (128 * 1024) + b"{}", "mgpud's reply has 131074 bytes, at most 131072"),
]


@pytest.mark.parametrize(("reply", "line"), REPLIES)
def test_bad_replies(tmp_path: Path, reply: Any, line: str) -> None:
    with Mgpud(tmp_path / "s", lambda _: reply):
        done = hook("bind", tmp_path / "s")
    assert done.returncode == 1
    assert one_line(done.stderr).startswith(f"mgpu: {line}")


@pytest.mark.parametrize(
    "reply",
    [
        b'{"version":1,"ok":true}',
        b' {"x":[1,-0.5e+3,{"ok":false}],"ok" : true , "y":null} \n',
        b'{"ok":false,"ok":true}',
    ],
)
def test_good_replies(tmp_path: Path, reply: bytes) -> None:
    with Mgpud(tmp_path / "s", lambda _: reply):
        assert hook("bind", tmp_path / "s").returncode == 0


@pytest.mark.parametrize(
    "state",
    [
        "",
        " ",
        "null",
        "[]",
        '"x"',
        "{",
        '{"id":}',
        '{"id":"a"}{}',
        '{"id":"a\n"}',
        "{'id':1}",
        '{"a":01}',
        '{"a":+1}',
    ]
    + [
        '{"a":"\\x"}',
        '{"a":"\\u12g4"}',
        '{"a":.5}',
        '{"a":1.}',
        '{"a":nul}',
        '{"a"\0:1}',
        '{"a":"',
        '{"a":"\\',
    ],
)
def test_bad_state_is_not_sent(tmp_path: Path, state: str) -> None:
    with Mgpud(tmp_path / "s", lambda _: ok()) as mgpud:
        done = hook("bind", tmp_path / "s", state)
    assert done.returncode == 1
    assert one_line(done.stderr).startswith("mgpu: the container's state is not a JSON object (")
    assert mgpud.requests == []


def test_state_over_the_bound(tmp_path: Path) -> None:
    done = hook("bind", tmp_path / "s", '{"a":"' + "x" * 128 * 1024 + '"}')
    assert done.returncode == 1
    assert one_line(done.stderr).startswith("mgpu: the container's state has 130944 bytes or more; ")


def test_state_just_below_the_bound_is_sent(tmp_path: Path) -> None:
    state = '{"id":"' + "x" * (130943 - 9) + '"}'
    with Mgpud(tmp_path / "s", lambda _: ok()) as mgpud:
        assert hook("bind", tmp_path / "s", state).returncode == 0
    assert mgpud.requests[0]["state"] == json.loads(state)


def test_state_in_pieces(tmp_path: Path) -> None:
    command = [program("mgpu-hook"), "bind", "--socket", str(tmp_path / "s"), "--grant", NONCE]
    with Mgpud(tmp_path / "s", lambda _: ok()) as mgpud:
        process = subprocess.Popen(command, stdin=subprocess.PIPE)
        assert process.stdin is not None
        for piece in (STATE[:5], STATE[5:30], STATE[30:]):
            process.stdin.write(piece.encode())
            process.stdin.flush()
            time.sleep(0.02)
        process.stdin.close()
        assert process.wait(timeout=60) == 0
    assert mgpud.requests[0]["state"] == json.loads(STATE)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["unbind", "--socket", "/s", "--grant", NONCE],
        ["bind"],
        ["bind", "--socket", "/s"],
        ["bind", "--grant", NONCE],
        ["bind", "--socket", "/s", "--grant"],
        ["bind", "--socket", "/s", "--grant", NONCE[:-1]],
        ["bind", "--socket", "/s", "--grant", NONCE[:-1] + '"'],
        ["bind", "--socket", "/s", "--grant", NONCE, "--extra"],
        ["bind", "--socket", "/" + "s" * 200, "--grant", NONCE],
    ],
)
def test_bad_arguments(arguments: list[str]) -> None:
    done = attempt(program("mgpu-hook"), *arguments, stdin="{}")
    assert done.status == 1
    one_line(done.err)


def test_closed_stdin(tmp_path: Path) -> None:
    command = [program("mgpu-hook"), "bind", "--socket", str(tmp_path / "s"), "--grant", NONCE]
    done = attempt("sh", "-c", 'exec "$@" <&-', "sh", *command)
    assert done.status == 1
    one_line(done.err)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(state=st.dictionaries(st.text(max_size=6), json_values, max_size=5), ascii_only=st.booleans())
def test_hook_accepts_any_json_object(tmp_path: Path, state: dict[str, Any], ascii_only: bool) -> None:
    path = tmp_path / "s"
    path.unlink(missing_ok=True)
    text = json.dumps(state, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    with Mgpud(path, lambda _: ok()) as mgpud:
        assert hook("bind", path, text).returncode == 0
    assert mgpud.requests[0]["state"] == json.loads(text)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cut=st.integers(0, len(STATE) - 1), noise=st.binary(max_size=3))
def test_damaged_state_is_refused_or_still_json(tmp_path: Path, cut: int, noise: bytes) -> None:
    path = tmp_path / "s"
    path.unlink(missing_ok=True)
    data = STATE.encode()[:cut] + noise
    with Mgpud(path, lambda _: ok()) as mgpud:
        done = hook("bind", path, data)
    try:
        valid = isinstance(json.loads(data), dict)
    except ValueError:
        valid = False
    assert done.returncode == (0 if valid else 1)
    assert len(mgpud.requests) == int(valid)


def test_time_out_of_a_silent_mgpud(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as silent:
        silent.bind(str(tmp_path / "s"))
        silent.listen()
        started = time.monotonic()
        done = hook("bind", tmp_path / "s")
    assert 0.9 < time.monotonic() - started < 60
    assert one_line(done.stderr).startswith(f"mgpu: mgpud did not answer on {tmp_path}/s within 1 s; ")


def test_time_out_of_a_state_that_does_not_end(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    try:
        os.write(writing, b"{")
        command = [program("mgpu-hook"), "bind", "--socket", str(tmp_path / "s"), "--grant", NONCE]
        done = subprocess.run(
            command, stdin=reading, text=True, capture_output=True, check=False, timeout=60
        )
    finally:
        os.close(reading)
        os.close(writing)
    assert done.returncode == 1
    assert one_line(done.stderr).startswith("mgpu: the container's state did not end within 1 s; ")
