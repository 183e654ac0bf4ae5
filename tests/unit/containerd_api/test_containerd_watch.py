"""The process that watches containerd for mgpud: what it says, and that it outlives every containerd."""

import json
import os
import selectors
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from containerd_api.generated import process_pb2
from tests.support.commands import run
from tests.support.places import REPOSITORY
from tests.support.waiting import until
from tests.unit.containerd_support import FakeContainerd, serving


class Watcher:
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.heard: list[dict[str, Any]] = []
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        self._data = b""

    def tell(self, **members: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(members).encode() + b"\n")
        self.process.stdin.flush()

    def until(self, timeout_s: float = 60.0, **members: Any) -> dict[str, Any]:
        """The next message that has these members; what came before it is forgotten."""
        assert self.process.stdout is not None
        deadline = time.monotonic() + timeout_s
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while time.monotonic() < deadline:
                while self.heard:
                    message = self.heard.pop(0)
                    if members.items() <= message.items():
                        return message
                if selector.select(0.1):
                    self._data += os.read(self.process.stdout.fileno(), 1 << 16)
                    *lines, self._data = self._data.split(b"\n")
                    # Of uevents any other card on the machine makes some.
                    self.heard += [one for one in map(json.loads, lines) if "uevent" not in one]
        raise AssertionError(f"not heard: {members}")

    def silent(self, seconds: float) -> None:
        with pytest.raises(AssertionError):
            self.until(seconds)


@contextmanager
def watcher(*addresses: Path) -> Iterator[Watcher]:
    argv = [sys.executable, "-m", "containerd_api.watch", *map(str, addresses)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=REPOSITORY) as process:
        yield Watcher(process)
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(60) == 0


@pytest.fixture
def address(tmp_path: Path) -> Path:
    return tmp_path / "c.sock"


def known(address: Path, **changed: Any) -> dict[str, Any]:
    facts = {
        "address": str(address),
        "namespace": "default",
        "name": None,
        "runtime": "io.containerd.runc.v2",
        "task": "running",
    }
    return facts | changed


def test_containers_that_matter_and_no_others(address: Path) -> None:
    with serving(address) as fake, watcher(address) as watching:
        fake.add("k8s.io", "c1", labels={"nerdctl/namespace": "k8s.io", "nerdctl/name": "job"})
        fake.add("default", "c2")
        watching.until(address=str(address), state="connected 1.6.20")
        watching.tell(watch="c1")
        assert watching.until(container="c1")["known"] == known(
            address, namespace="k8s.io", name="k8s.io/job"
        )
        assert fake.subscribed.wait(60)
        for container in ("c2", "c1"):
            fake.happen("paused", container)
        assert watching.until()["container"] == "c1"
        fake.happen("exit", "c1", id="an-exec", exit_status=3)
        fake.happen("exit", "c1", id="c1", exit_status=137)
        assert watching.until(event="exit") == {"container": "c1", "event": "exit", "exit_status": 137}
        watching.tell(forget="c1")
        watching.tell(watch="c2")
        watching.until(container="c2")
        fake.happen("resumed", "c1")
        fake.happen("resumed", "c2")
        assert watching.until(event="resumed")["container"] == "c2"


def test_state_that_was_missed_is_looked_at_after_connecting(address: Path) -> None:
    with serving(address) as fake, watcher(address) as watching:
        fake.add("default", "c1", status=process_pb2.PAUSED)
        watching.tell(watch="c1")
        assert watching.until(container="c1")["known"]["task"] == "paused"


def test_watcher_reconnects(address: Path) -> None:
    with watcher(address) as watching:
        watching.tell(watch="c1")
        for _ in range(2):
            with serving(address) as fake:
                fake.add("default", "c1")
                watching.until(state="connected 1.6.20")
                watching.until(container="c1")
            watching.until(address=str(address))
            address.unlink(missing_ok=True)


def test_dead_socket_is_reported_once(tmp_path: Path) -> None:
    stale = tmp_path / "s.sock"
    os.mknod(stale, stat.S_IFSOCK | 0o600)
    with watcher(stale, tmp_path / "none.sock") as watching:
        assert watching.until(address=str(stale))["state"] == "there is no answer"
        watching.silent(1.8)


def test_silent_containerd_does_not_block_another(tmp_path: Path) -> None:
    silent, other = tmp_path / "s.sock", tmp_path / "o.sock"
    with serving(silent) as mute, serving(other) as fake, watcher(silent, other) as watching:
        mute.mute.set()
        fake.add("default", "c1")
        watching.tell(watch="c1")
        assert watching.until(container="c1")["known"]["address"] == str(other)
        assert "in time" in watching.until(address=str(silent))["state"]


def test_flood_of_events_is_passed_on_slowly(address: Path) -> None:
    with serving(address) as fake, watcher(address) as watching:
        fake.add("default", "c1")
        watching.tell(watch="c1")
        watching.until(container="c1")
        assert fake.subscribed.wait(60)
        for _ in range(5000):
            fake.happen("oom", "c1")
        watching.until(event="oom")
        began = time.monotonic()
        for _ in range(100):
            watching.until(event="oom")
        assert time.monotonic() - began > 0.3


def test_watcher_ends_with_mgpud(address: Path) -> None:
    with serving(address) as fake, watcher(address) as watching:
        fake.add("default", "c1")
        watching.until(state="connected 1.6.20")
        until(fake.subscribed.is_set, "it listens")


def test_containerd_api_is_not_loaded_by_mgpud() -> None:
    script = "import sys, native_sched.daemon.main; print('grpc' in sys.modules, 'google.protobuf' in sys.modules)"
    assert run(sys.executable, "-c", script, cwd=REPOSITORY).split() == ["False", "False"]


def test_look_up_is_a_handful_of_calls(address: Path) -> None:
    """One look-up of a container is a handful of calls, whatever else there is."""
    with serving(address, FakeContainerd()) as fake, watcher(address) as watching:
        for number in range(200):
            fake.add("default", f"other-{number}")
        fake.add("k8s.io", "c1")
        watching.tell(watch="c1")
        watching.until(container="c1")
        assert len(fake.calls) <= 6
