"""The client against a containerd of the tests' own: what it reads, and what becomes of one that does not
answer.
"""

import asyncio
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from containerd_api import names
from containerd_api.client import Containerd, ContainerdError, Event, Task
from tests.unit.containerd_support import FakeContainerd, serving

T = TypeVar("T")


@pytest.fixture
def address(tmp_path: Path) -> Path:
    return tmp_path / "c.sock"


@pytest.fixture
def fake(address: Path) -> Iterator[FakeContainerd]:
    with serving(address) as made:
        yield made


def ask(address: Path, what: Callable[[Containerd], Awaitable[T]], timeout_s: float = 60.0) -> T:
    async def asked() -> T:
        async with Containerd(str(address), timeout_s=timeout_s) as containerd:
            return await what(containerd)

    return asyncio.run(asked())


def test_version_namespaces_and_plugins_are_read(fake: FakeContainerd, address: Path) -> None:
    fake.broken["io.containerd.grpc.v1/cri"] = "no CNI"
    assert ask(address, lambda containerd: containerd.version()) == "1.6.20"
    assert ask(address, lambda containerd: containerd.namespaces()) == ["default", "k8s.io"]
    plugins = ask(address, lambda containerd: containerd.plugins())
    assert [(each.id, each.error) for each in plugins] == [("cri", "no CNI"), ("task", "")]


def test_containers_and_tasks(fake: FakeContainerd, address: Path) -> None:
    fake.add("k8s.io", "c1", labels={"io.kubernetes.pod.name": "p"})
    found = ask(address, lambda containerd: containerd.container("k8s.io", "c1"))
    assert found is not None
    assert (found.namespace, found.runtime, found.labels) == (
        "k8s.io",
        "io.containerd.runc.v2",
        {"io.kubernetes.pod.name": "p"},
    )
    assert ask(address, lambda containerd: containerd.container("default", "c1")) is None
    assert ask(address, lambda containerd: containerd.task("k8s.io", "c1")) == Task("c1", 7, "running", 0)
    assert ask(address, lambda containerd: containerd.task("default", "c1")) is None
    assert ask(address, lambda containerd: containerd.tasks("k8s.io")) == [Task("c1", 7, "running", 0)]


def test_status_of_a_newer_containerd(fake: FakeContainerd, address: Path) -> None:
    fake.add("default", "c1", status=99)
    assert ask(address, lambda containerd: containerd.task("default", "c1")) == Task("c1", 7, "unknown", 0)


def test_events(fake: FakeContainerd, address: Path) -> None:
    fake.happen("paused", "c1")
    fake.happen("exit", "c1", id="c1", exit_status=137)
    fake.happen("exit", "c1", id="an-exec", exit_status=1)
    fake.happen("oom", "c2")

    async def heard(containerd: Containerd) -> list[Event]:
        found: list[Event] = []
        async for event in containerd.events():
            found.append(event)
            if len(found) == 4:
                break
        return found

    assert ask(address, heard) == [
        Event("default", "paused", "c1"),
        Event("default", "exit", "c1", 137),
        Event("default", "exit", "c1", 1, "an-exec"),
        Event("default", "oom", "c2"),
    ]
    assert 'topic=="/tasks/paused"' in fake.filters


def test_event_that_cannot_be_read(fake: FakeContainerd, address: Path) -> None:
    fake.raw("paused", b"\xff\xff\xff")

    async def heard(containerd: Containerd) -> None:
        async for _ in containerd.events():
            raise AssertionError("it was read")

    with pytest.raises(ContainerdError, match="cannot be read"):
        ask(address, heard)


def test_silent_containerd_times_out(fake: FakeContainerd, address: Path) -> None:
    fake.mute.set()
    began = time.monotonic()
    with pytest.raises(ContainerdError, match="in time"):
        ask(address, lambda containerd: containerd.version(), timeout_s=0.2)
    assert time.monotonic() - began < 60


def test_missing_containerd_is_an_error(address: Path) -> None:
    with pytest.raises(ContainerdError, match=r"there is no answer|in time"):
        ask(address, lambda containerd: containerd.version(), timeout_s=0.5)


def test_something_else_there(address: Path) -> None:
    """A server that speaks no HTTP/2."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(address))
        listener.listen()

        def babble() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(b"220 hello\r\n" * 1000)

        thread = threading.Thread(target=babble, daemon=True)
        thread.start()
        with pytest.raises(ContainerdError):
            ask(address, lambda containerd: containerd.version(), timeout_s=0.5)
        thread.join(60)


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        (
            {
                "io.kubernetes.pod.namespace": "n",
                "io.kubernetes.pod.name": "p",
                "io.kubernetes.container.name": "c",
                "nerdctl/name": "k8s://n/p/c",
            },
            "n/p/c",
        ),
        ({"nerdctl/namespace": "default", "nerdctl/name": "web-1"}, "default/web-1"),
        ({"com.docker.compose.project": "shop", "com.docker.compose.service": "db"}, "shop/db"),
        ({"io.kubernetes.pod.name": "p"}, None),
        ({"containerd.io/restart.status": "running"}, None),
        ({}, None),
    ],
)
def test_names(labels: dict[str, str], said: str | None) -> None:
    assert names.name(labels) == said
