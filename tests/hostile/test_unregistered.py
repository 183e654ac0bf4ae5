"""A tenant with a channel that nvidia-uvm knows nothing of: RM takes the whole group off no runlist."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.support import arbiter
from tests.support.arbiter import Arbiter
from tests.support.colocation import came_back, mark, row, working
from tests.support.load import load, runs
from tests.support.programs import Programs
from tests.support.scrape import scrape
from tests.support.started import Foreground
from tests.support.waiting import until

ONLINE = ("saturate", "--kernel-us", "1000", "--queue", "8")
HOLD = "hold_ms = 40\n"
BY_RUNLIST = ("disable-channels=0",)
# mgpud has 1.5 s of patience with tries that are at most 128 ms apart, and other programs want these
# processors.
SOON_S = 20.0
ON_NS = 50_000_000


@dataclass(frozen=True)
class Offline:
    mgpu: Arbiter
    name: str
    running: Foreground

    def told(self) -> int:
        """Its next step's result."""
        self.running.tell()
        return int(self.running.line())

    @property
    def log(self) -> str:
        return (self.mgpu.root / "log" / "mgpud.log").read_text()

    @property
    def failures(self) -> int:
        return int(scrape(self.mgpu.root).one("mgpu_suspend_failures_total"))

    def turns(self) -> list[str]:
        grant = self.is_there()["id"]
        events = self.mgpu.ask("timeline", since=0)["events"]
        return [kind for _, _, whose, kind, *_ in events if whose == grant]

    def is_there(self) -> dict[str, object]:
        found = row(self.mgpu, self.name)
        assert found is not None, self.log
        return found


@contextmanager
def offline(built: Programs, what: str, *options: str) -> Iterator[Offline]:
    """At work on the card, one of its channels registered."""
    env = {"MGPU_MEMORY_MIB": "512", "MGPU_QOS": "offline"}
    with (
        arbiter.running("h200", sim_options=options, node_config=HOLD) as mgpu,
        built.bundle("unregistered", what, env=env) as made,
        made.running(mgpu.runtime) as running,
    ):
        assert running.line() == "ready"
        working(mgpu, made.container)
        yield Offline(mgpu, made.container, running)


def test_unregistered_tenant_is_killed_where_it_cannot_be_suspended(
    private_host: None, built: Programs
) -> None:
    with offline(built, "add", *BY_RUNLIST) as one:
        assert one.told() == 0
        since = mark(one.mgpu)
        with load(one.mgpu, *ONLINE, "--seconds", "600") as online:
            pid = working(one.mgpu, online.name)
            until(lambda: row(one.mgpu, one.name) is None, "its container has ended", timeout_s=SOON_S)
            end = max(span.end_ns for span in runs(since.spans(), pid))
            until(
                lambda: max(span.end_ns for span in runs(since.spans(), pid)) > end + ON_NS,
                "online goes on",
            )
            assert online.stop()
        [line] = [line for line in one.log.splitlines() if "killed-" in line]
        assert f"event=killed-unsuspendable container={one.name}" in line
        assert "RM's status 0x40" in line
        assert one.failures > 2


def test_unregistered_tenant_is_suspended_where_channels_are_disabled(
    private_host: None, built: Programs
) -> None:
    with offline(built, "add") as one:
        assert one.told() == 0
        since = mark(one.mgpu)
        pid = int(str(one.is_there()["pid"]))
        with load(one.mgpu, *ONLINE, "--seconds", "2") as online:
            its = working(one.mgpu, online.name)
            assert online.result()
        came_back(since, online=its, offline=[pid])
        assert "suspended" in one.turns()
        assert one.failures == 0
        assert "killed-" not in one.log


def test_program_that_ends_is_no_such(private_host: None, built: Programs) -> None:
    """UNREGISTER_CHANNEL comes before FREE."""
    with offline(built, "end", *BY_RUNLIST) as one:
        assert one.told() == 0
        with load(one.mgpu, *ONLINE, "--seconds", "600") as online:
            until(lambda: one.failures > 0, "it cannot be suspended")
            assert one.told() == 0
            until(lambda: "suspended" in one.turns(), "it is suspended")
            working(one.mgpu, online.name)
            online.stop()
        assert "killed-" not in one.log
