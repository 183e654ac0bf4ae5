"""Whatever is wrong around it: one clear line, a non-zero exit, and nothing half-registered."""

import json
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from mgpu_cli import kernel
from oci_specs import paths
from tests.support import arbiter, host
from tests.support.arbiter import Arbiter
from tests.support.bundle import Bundle, bundle
from tests.support.commands import attempt
from tests.support.lasting import lasting_mgpu
from tests.support.places import MGPU
from tests.support.waiting import until

ENV = {"MGPU_MEMORY_MIB": "1024"}


lasting, mgpu = lasting_mgpu()


def only_line(text: str) -> str:
    """The one line of ours in what a user sees."""
    [line] = [line for line in text.splitlines() if line.startswith("mgpu: ")]
    return line


def fill_up(folder: Path) -> None:
    """Writes until there is no room left."""
    with (folder / "fill").open("wb", buffering=0) as fill, suppress(OSError):
        while True:
            fill.write(b"x" * 512)


def no_config(made: Bundle) -> None:
    (made.path / "config.json").unlink()


def config_is_no_json(made: Bundle) -> None:
    (made.path / "config.json").write_text('{"process": ')


def config_is_a_list(made: Bundle) -> None:
    (made.path / "config.json").write_text("[]")


def annotations_are_a_list(made: Bundle) -> None:
    made.edit(lambda config: config.update(annotations=["mgpu.dev/memory-mib=1024"]))


def an_annotation_is_a_number(made: Bundle) -> None:
    made.edit(lambda config: config.update(annotations={"mgpu.dev/memory-mib": 1024}))


def env_is_text(made: Bundle) -> None:
    made.edit(lambda config: config["process"].update(env="MGPU_MEMORY_MIB=1024"))


def seccomp_is_text(made: Bundle) -> None:
    made.edit(lambda config: config["linux"].update(seccomp="default"))


def an_annotation_that_never_ends(made: Bundle) -> None:
    made.edit(lambda config: config.update(annotations={"mgpu.dev/memory-mib": "1" * 200_000}))


SPOILED = [
    no_config,
    config_is_no_json,
    config_is_a_list,
    annotations_are_a_list,
    an_annotation_is_a_number,
    env_is_text,
    seccomp_is_text,
    an_annotation_that_never_ends,
]


@pytest.mark.parametrize("spoil", SPOILED)
def test_bundles(mgpu: Arbiter, spoil: Callable[[Bundle], None]) -> None:
    with bundle("true", env=ENV) as made:
        spoil(made)
        done = made.run(mgpu.runtime)
        assert done.status == 1, str(done)
        assert len(only_line(done.err)) < 400
        assert mgpu.containers() == []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "x.json"),
        ("[]", "x.json"),
        ('{"cdiVersion": "0.6.0", "kind": "sim.mgpu.dev/gpu", "devices": 7}', "x.json"),
        (None, "x.json"),
    ],
)
def test_cdi_spec_that_cannot_be_read(mgpu: Arbiter, text: str | None, says: str) -> None:
    spec = mgpu.root / "cdi" / "x.json"
    if text is None:
        spec.mkdir()
    else:
        spec.write_text(text)
    try:
        with bundle("true", env=ENV) as made:
            done = made.run(mgpu.runtime)
            assert done.status == 1, str(done)
            assert says in only_line(done.err)
            assert mgpu.containers() == []
    finally:
        if text is None:
            spec.rmdir()
        else:
            spec.unlink()


@pytest.mark.parametrize(
    "packet",
    [
        b"",
        b"\x00",
        b"{",
        b'{"version":1,"verb":"admit"}',
        b'{"version":1,"verb":"bind","nonce":"x","state":{"id":"c","pid":-1}}',
        b'{"version":1,"verb":"list"}' + b" " * 200_000,
    ],
)
def test_control_messages(mgpu: Arbiter, packet: bytes) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as control:
        control.setsockopt(socket.SOL_SOCKET, 32, 1 << 20)  # SO_SNDBUFFORCE
        control.connect(str(mgpu.control))
        control.send(packet)
        control.shutdown(socket.SHUT_WR)
        data = control.recv(1 << 20)
        if packet:
            assert json.loads(data)["ok"] is False
    assert mgpu.containers() == []


@pytest.mark.parametrize("stdin", ["", "{", "[]", '{"id": 7}', '{"id": "c"}', "x" * 200_000])
@pytest.mark.parametrize("verb", ["bind", "release"])
def test_states_on_the_hooks_stdin(mgpu: Arbiter, verb: str, stdin: str) -> None:
    grant = ("--grant", "0" * 32)
    done = attempt(paths.libexec("mgpu-hook"), verb, "--socket", mgpu.control, *grant, stdin=stdin)
    if verb == "bind":
        assert done.status == 1
        only_line(done.err)
    assert mgpu.containers() == []


def test_full_disk_for_the_bundle(mgpu: Arbiter) -> None:
    with bundle("true", env=ENV) as made:
        config = (made.path / "config.json").read_bytes()
        small = made.path / "small"
        small.mkdir()
        kernel.mount("tmpfs", small, "tmpfs", data="size=12k")
        (small / "config.json").write_bytes(config)
        fill_up(small)
        done = attempt(mgpu.runtime, "--root", made.state, "run", "--bundle", small, made.container)
        assert done.status == 1, str(done)
        assert "No space left" in only_line(done.err)
        assert (small / "config.json").read_bytes() == config
        until(lambda: mgpu.containers() == [], "the reservation is back")
        kernel.unmount(small)


def test_full_disk_for_the_sockets(private_host: None) -> None:
    with host.home("full") as folder:
        kernel.mount("tmpfs", folder, "tmpfs", data="size=4k,nr_inodes=5")
        done = attempt(MGPU, "up", "--sim", "v100-16:1", "--root", folder / "r")
        assert done.status == 1, str(done)
        assert "No space left" in done.err
        assert len(done.err.strip().splitlines()) <= 3, done.err
        kernel.unmount(folder)


def test_wrong_node_config_leaves_no_process(private_host: None) -> None:
    with (
        pytest.raises(AssertionError, match="no_such_key"),
        arbiter.running(node_config="no_such_key = 1\n"),
    ):
        pass


def test_mgpud_refuses_a_driver_it_cannot_reach(tmp_path: Path) -> None:
    done = attempt(MGPU.parent / "mgpud", "--root", tmp_path, "--driver", "nvidia")
    assert done.status == 1
    assert "NVML" in only_line(done.err)
    assert os.listdir(tmp_path) == []
