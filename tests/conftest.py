"""Fixtures of the tests that run containers; every test gets a marker and, on failure, the logs."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import hypothesis
import pytest

from tests.support import arbiter, containerd, cri, crio, dockerd, host, minutes, podman, programs
from tests.support.arbiter import Arbiter
from tests.support.checkpoint import Checkpoint, checkpoint_program
from tests.support.containerd import Containerd
from tests.support.cri import Kubelet, OnContainerd
from tests.support.dockerd import Dockerd
from tests.support.logs import LOGS
from tests.support.places import IMAGE_ARCHIVE, MGPU
from tests.support.podman import Podman
from tests.support.programs import Programs

# A change is judged by the same examples each time; a developer's runs meet new ones.
# How long examples take says something of the machine only.
hypothesis.settings.register_profile(
    "default", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.register_profile("ci", hypothesis.settings.get_profile("default"), derandomize=True)
hypothesis.settings.load_profile("default")
if os.environ.get("CI"):
    hypothesis.settings.load_profile("ci")

pytest_plugins = ["tests.support.left_open"]

TESTS = Path(__file__).parent
MARKED_FOLDERS = frozenset(
    {
        "abi",
        "bench",
        "chaos",
        "cluster",
        "containers",
        "foreign",
        "fuzz",
        "gpu",
        "hostile",
        "kubernetes",
        "native",
        "sim",
        "unit",
    }
)
# What brings one with it.
DAEMONS = frozenset({"ctd", "docker_daemon", "docker", "pod", "kubelet", "on_crio"})
FAILED = pytest.StashKey[bool]()


class Clearable(Protocol):
    """An engine that lasts longer than a test."""

    def clear(self) -> None: ...


LASTING: list[Clearable] = []


def _end(process: subprocess.Popen[bytes], kind: Any, *rest: Any) -> None:
    """Of a `with` block that failed nobody waits for a program which was to be told to end further down."""
    if kind is not None:
        process.kill()
    _wait_at_the_end(process, kind, *rest)


_wait_at_the_end = subprocess.Popen.__exit__
subprocess.Popen.__exit__ = _end  # type: ignore[assignment]


def pytest_configure() -> None:
    # Whoever starts the tests in the background may have it ignored, which programs inherit.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        folder = item.path.relative_to(TESTS).parts[0]
        if folder in MARKED_FOLDERS:
            item.add_marker(folder)
        if DAEMONS & set(getattr(item, "fixturenames", ())):
            item.add_marker("daemon")
    # What is quick and most often wrong first; within a folder the order stays.
    slow = ("containers", "foreign", "fuzz", "hostile", "chaos")
    items.sort(key=lambda item: item.path.relative_to(TESTS).parts[0] in slow)


def pytest_runtest_setup() -> None:
    LOGS.mark()


@contextmanager
def cleared_after_failures(engine: Clearable) -> Iterator[None]:
    """What a test leaves there when it fails is no fault of the next one."""
    LASTING.append(engine)
    try:
        yield
    finally:
        LASTING.remove(engine)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """While the mgpu that its containers were started with is there."""
    if item.stash.get(FAILED, False):
        item.stash[FAILED] = False
        for engine in LASTING:
            # What ails the engine has failed the test already.
            with suppress(Exception):
                engine.clear()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report: pytest.TestReport = yield  # type: ignore[assignment]
    if report.failed:
        item.stash[FAILED] = True
        report.sections += [(f"log of {name}", text) for name, text in LOGS.since_mark()]
    return report  # type: ignore[return-value]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Fuzzers and other tests that wait for what runs beside them count with what they waited."""
    reports = [one for of_kind in terminalreporter.stats.values() for one in of_kind]
    lines = minutes.by_suite(one for one in reports if isinstance(one, pytest.TestReport))
    # A few tests of one folder are timed by pytest's last line.
    if len(lines) > 2:
        terminalreporter.section("minutes by suite", sep="=")
        terminalreporter.write_line("\n".join(lines))


@pytest.fixture(scope="session")
def private_host() -> None:
    """Root's own view of the machine, which everything that starts a container needs: see
    host.become_private.
    """
    if os.geteuid() != 0:
        pytest.fail("these tests start containers: run them as root, with make test")
    for needed in (MGPU, IMAGE_ARCHIVE):
        if not needed.exists():
            pytest.fail(f"{needed} does not exist: run the tests with make test, which makes it")
    host.become_private()


@pytest.fixture
def mgpu(private_host: None) -> Iterator[Arbiter]:
    """mgpu on two simulated V100-16, with nothing on them; another set-up: arbiter.running()."""
    with arbiter.running() as running:
        yield running


@pytest.fixture
def checkpoint() -> Iterator[Checkpoint]:
    with checkpoint_program() as running:
        yield running


@pytest.fixture(scope="session")
def ctd(private_host: None) -> Iterator[Containerd]:
    """A containerd for the whole run, with the test image."""
    with containerd.running() as running, cleared_after_failures(running):
        yield running


@pytest.fixture(scope="session")
def docker_daemon(private_host: None) -> Iterator[Dockerd]:
    """A dockerd for the whole run, with the test image."""
    with dockerd.running() as running, cleared_after_failures(running):
        yield running


@pytest.fixture
def docker(docker_daemon: Dockerd, mgpu: Arbiter) -> Iterator[Dockerd]:
    """The dockerd, whose `--runtime=mgpu` is this test's mgpu; containers end with the test."""
    docker_daemon.point_at(mgpu.runtime)
    yield docker_daemon
    docker_daemon.clear()


@pytest.fixture(scope="session")
def pod(private_host: None) -> Iterator[Podman]:
    """podman for the whole run, with the test image."""
    with podman.running() as running, cleared_after_failures(running):
        yield running


@pytest.fixture(scope="session")
def kubelet(private_host: None) -> Iterator[OnContainerd]:
    """Pods on a containerd of its own for the whole run, with handlers of mgpu's; see cri.running."""
    with cri.running() as running, cleared_after_failures(running):
        yield running


@pytest.fixture(scope="session")
def on_crio(private_host: None) -> Iterator[Kubelet]:
    """Pods on a CRI-O of its own for the whole run; Debian has none, so it is skipped without one on PATH."""
    if not crio.is_here():
        pytest.skip("there is no crio here")
    with crio.running() as running, cleared_after_failures(running):
        yield running


@pytest.fixture(scope="session")
def built(private_host: None) -> Iterator[Programs]:
    """The test programs, to be mounted into containers."""
    with programs.built() as found:
        yield found
