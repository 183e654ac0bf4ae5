"""A scrape of a running mgpud, against the simulated cards' own account; `mgpu health`, and the log."""

import json
import os
import re
import signal
import socket
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import pytest

from oci_specs import build
from sim.cards import CardAccount
from tests.support import arbiter, promtool
from tests.support.arbiter import Arbiter
from tests.support.bundle import bundle
from tests.support.console import matches, steps
from tests.support.load import bound, load, working
from tests.support.places import REPOSITORY
from tests.support.programs import Programs
from tests.support.scrape import Scrape, scrape
from tests.support.waiting import until

pytestmark = pytest.mark.usefixtures("private_host")

S = 1_000_000_000
MIB = 1 << 20
CONFIG = "hold_ms = 20\npolicy = 'native-burst-share'\n"
# What is queued outlasts a client's wait for a CPU.
SATURATE = ("saturate", "--kernel-us", "1000", "--queue", "64", "--seconds", "600")
BURST = ("burst", "--period-ms", "150", "--kernels", "20", "--kernel-us", "1000", "--seconds", "600")
PERIOD_S = 0.15
LOOKED_BURSTS = 12
# Of the eight things that tests/programs/resume.c tries: to preempt, to interleave, to be realtime. What else
# it asks for about its own channels is noted as its wish.
TRIES_REFUSED = 2 / 8
# Part of the card's time by which mgpud's account may differ from the card's: work is seen some looks late.
NOISE = 0.04
RSS_MAX_KIB = 64 << 10


@dataclass(frozen=True)
class Moment:
    """A scrape and what the card says right after it. took_s: that both took together."""

    scrape: Scrape
    card: CardAccount
    at_s: float
    took_s: float

    def ran_s(self, pid: int) -> float:
        """Time that the card's graphics engine gave the process, by the card."""
        [engine] = [one for one in self.card.engines if one.engine == "graphics"]
        own = [group for group in (*engine.groups, *self.card.ended) if group.tgid == pid]
        return sum(group.run_ns + group.switch_ns for group in own if group.engine == "graphics") / S


def moment(mgpu: Arbiter) -> Moment:
    at_s = time.monotonic()
    found, card = scrape(mgpu.root), mgpu.account().cards[0]
    return Moment(found, card, at_s, time.monotonic() - at_s)


@contextmanager
def served(config: str = CONFIG) -> Iterator[Arbiter]:
    """mgpu on one card, once metrics are there."""
    with arbiter.running("v100-16", node_config=config) as mgpu:
        until(lambda: (mgpu.root / "metrics.sock").exists(), "metrics are served")
        yield mgpu


def refused(mgpu: Arbiter, **env: str) -> str:
    """What a container with these variables is refused with."""
    with bundle("true", env=env) as made:
        done = made.run(mgpu.runtime)
    assert done.status != 0
    return done.out + done.err


def test_scrape_says_what_the_cards_own_account_says() -> None:
    with served() as mgpu:
        empty = scrape(mgpu.root)
        assert promtool.complaints(empty.text) == ""
        assert empty.values("mgpu_container_run_seconds_total") == []
        assert empty.one("mgpu_preemption_latency_seconds_count") == 0
        with ExitStack() as stack:
            offline = stack.enter_context(load(mgpu, *SATURATE, qos="offline"))
            working(offline)
            online = stack.enter_context(load(mgpu, *BURST, qos="online"))
            working(online)
            one = moment(mgpu)
            begun = one.scrape.of("preemptions_total", offline.name)
            until(
                lambda: scrape(mgpu.root).of("preemptions_total", offline.name) >= begun + LOOKED_BURSTS,
                "online has come so often",
                poll_s=0.2,
            )
            two = moment(mgpu)
            passed_s = two.at_s - one.at_s
            listed = {row["container_id"]: row for row in mgpu.containers()}
            events = mgpu.ask("timeline", since=0)["events"]
            after = scrape(mgpu.root)
        names = [offline.name, online.name]
        until(lambda: not scrape(mgpu.root).values("mgpu_container_share_ratio"), "their series have ended")
        gone = scrape(mgpu.root)
        health = mgpu.ask("health")

    # Whose turn it is changes twice with each burst, which the next poll sees.
    polls = two.scrape.one("mgpu_scheduler_polls_total") - one.scrape.one("mgpu_scheduler_polls_total")
    between_polls_s = 2 * (passed_s / PERIOD_S + 1) * passed_s / polls
    for name in names:
        pid = listed[name]["pid"]
        charged_s = two.scrape.of("run_seconds_total", name) - one.scrape.of("run_seconds_total", name)
        tolerance_s = NOISE * passed_s + one.took_s + two.took_s + between_polls_s
        assert charged_s == pytest.approx(two.ran_s(pid) - one.ran_s(pid), abs=tolerance_s), name
        assert 0 < two.scrape.of("share_ratio", name) < 1
        uses = [file.bytes for file in two.card.files if file.tgid == pid]
        assert two.scrape.of("memory_used_bytes", name, card="0") == sum(uses) > 0
        assert two.scrape.of("memory_limit_bytes", name, card="0") == 1024 * MIB
    assert two.scrape.one("mgpu_card_memory_used_bytes", card="0") == two.card.used_bytes
    assert two.scrape.one("mgpu_card_memory_granted_bytes") == 2048 * MIB
    by_class = {
        qos: two.scrape.one("mgpu_card_run_seconds_total", **{"class": qos}) for qos in ("online", "offline")
    }
    for qos, name in (("offline", names[0]), ("online", names[1])):
        assert by_class[qos] == pytest.approx(two.scrape.of("run_seconds_total", name), abs=0.01)

    # Each burst takes the card from offline.
    preempted = two.scrape.of("preemptions_total", names[0]) - one.scrape.of("preemptions_total", names[0])
    assert LOOKED_BURSTS / 2 <= preempted <= 1.2 * passed_s / PERIOD_S + 1
    assert two.scrape.of("suspended_seconds_total", names[0]) > preempted * 0.02
    assert_latencies(events, after)
    assert two.scrape.one("mgpu_mediated_calls_total") > 20
    assert polls > 300
    assert two.scrape.one("mgpu_listeners") == 2
    assert promtool.complaints(two.scrape.text) == ""

    # What containers did stays in the node's sums when they are gone.
    for total in ("mgpu_mediated_calls_total", "mgpu_preemption_latency_seconds_count"):
        assert gone.one(total) >= two.scrape.one(total)
    for qos, ran_s in by_class.items():
        assert gone.one("mgpu_card_run_seconds_total", **{"class": qos}) >= ran_s
    assert gone.one("mgpu_card_memory_used_bytes") == 0
    assert health["max_rss_kib"] < RSS_MAX_KIB


def assert_latencies(events: list[list[object]], found: Scrape) -> None:
    """The histogram has the preemptions that the scheduler's events tell of, and none is quicker than in
    these.
    """
    decided: dict[object, int] = {}
    took_s = []
    for at_ns, _since, grant, kind, _card, why in events:
        assert isinstance(at_ns, int)
        if kind == "suspend":
            decided[grant] = at_ns
        elif kind == "suspended" and why == "preempted":
            took_s.append((at_ns - decided[grant]) / S)
    name = "mgpu_preemption_latency_seconds"
    assert len(took_s) > 10
    # The scrape came after the events: a few more may have been meanwhile.
    later = found.one(f"{name}_count") - len(took_s)
    assert 0 <= later <= 5
    for bound_text in ("0.0001", "0.001", "0.01"):
        quicker = sum(took <= float(bound_text) for took in took_s)
        assert found.one(f"{name}_bucket", le=bound_text) <= quicker + later
    # Both are sums of the same times, each rounded in its own way; a thread may be kept from its processor
    # later.
    between_s = 0.05 * len(took_s)
    assert sum(took_s) - 1e-6 <= found.one(f"{name}_sum") <= 1.5 * sum(took_s) + 0.01 * later + between_s


def test_refusal_is_counted_and_logged() -> None:
    address = f"127.0.0.1:{free_port()}"
    with served(f"metrics_listen = '{address}'\n{CONFIG}") as mgpu:
        assert "allowed: " in refused(mgpu, MGPU_MEMORY_MIB="many")
        for _ in range(30):
            refused(mgpu, MGPU_MEMORY_MIB="20000", MGPU_QOS="online")
        with load(mgpu, "alloc", "--mib", "100", "--hold-ms", "60000") as small:
            bound(small)
            until(lambda: small.row()["cards"][0]["used_bytes"] > 100 * MIB, "it holds its memory")
            with load(mgpu, "alloc", "--mib", "2000", memory_mib=512) as large:
                assert large.running.process.wait(60) == 2, "CUDA_ERROR_OUT_OF_MEMORY"
            before = scrape(mgpu.root)
            assert before.of("refused_calls_total", small.name, reason="memory") == 0
        after = scrape(mgpu.root)
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=60) as answer:
            by_port = Scrape(answer.read().decode())
        log = (mgpu.root / "log" / "mgpud.log").read_text()
    assert after.one("mgpu_refused_calls_total", reason="memory") >= 1
    assert after.one("mgpu_refused_containers_total", reason="bad-value") == 1
    assert after.one("mgpu_refused_containers_total", reason="card-too-small") == 30
    assert by_port.one("mgpu_build_info", driver="sim", commit=build.commit_of(build.build())) == 1
    lines = [line for line in log.splitlines() if "event=refused" in line]
    assert all(
        re.match(r"time=\S+Z level=info event=refused container=\S+ code=\S+ why=\"", line) for line in lines
    )
    assert 1 + 10 <= len(lines) <= 31


def test_tenant_that_would_schedule_itself_is_counted_call_by_call(built: Programs) -> None:
    env = {"MGPU_MEMORY_MIB": "4096"}
    with (
        served() as mgpu,
        built.bundle("resume", "2", env=env) as made,
        made.running(mgpu.runtime) as hostile,
    ):
        assert hostile.line() == "ready"
        until(
            lambda: scrape(mgpu.root).of("refused_calls_total", made.container, reason="scheduling") > 100,
            "its own series says so",
        )
        tried = int(hostile.line().removeprefix("tried "))
        until(lambda: not mgpu.containers(), "it has ended")
        after = scrape(mgpu.root)
    assert after.one("mgpu_refused_calls_total", reason="scheduling") == TRIES_REFUSED * tried
    assert after.one("mgpu_mediated_calls_total") > TRIES_REFUSED * tried


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def test_page_shows_a_healthy_node_as_it_is(mgpu: Arbiter) -> None:
    until(lambda: (mgpu.root / "metrics.sock").exists(), "metrics are served")
    [step] = steps((REPOSITORY / "docs" / "metrics.md").read_text())
    assert step.command == "mgpu health"
    done = mgpu.try_mgpu("health")
    if not mgpu.ask("health")["sched_fifo"]:
        pytest.skip("this machine gives nobody SCHED_FIFO")
    assert matches(step.output, done.out), f"the page shows\n{step.output}\nand it prints\n{done.out}"
    assert done.status == 0


def stuck_s(mgpu: Arbiter) -> float:
    return scrape(mgpu.root).one("mgpu_thread_stuck_seconds", thread="scheduler")


@pytest.mark.timeout(180)
def test_health_tells_of_a_scheduler_that_hangs_in_the_driver_and_of_its_return() -> None:
    """The card stops for a while, as a driver that hangs: a thread that suspends a container waits for it."""
    with served() as mgpu, ExitStack() as stack:
        fine = mgpu.try_mgpu("health", "-o", "json")
        document = json.loads(fine.out)
        assert {one["name"]: one["state"] for one in document["checks"]} == {
            "mgpud": "ok",
            "start": "ok",
            "driver": "ok",
            "scheduler": "ok" if document["mgpud"]["sched_fifo"] else "attention",
            "mediator": "ok",
            "metrics": "ok",
            "GPUs": "ok",
            "containers": "ok",
            "tables": "ok",
            "errors": "ok",
        }
        assert fine.status == document["status"] == (0 if document["mgpud"]["sched_fifo"] else 1)
        # They take turns of 10 ms.
        for _ in range(2):
            working(stack.enter_context(load(mgpu, *SATURATE, qos="offline")))
        card = mgpu.pid_of("simcard")
        os.kill(card, signal.SIGSTOP)
        try:
            until(lambda: stuck_s(mgpu) >= 10, "the watchdog has seen it")
            hung = mgpu.try_mgpu("health")
        finally:
            os.kill(card, signal.SIGCONT)
        assert hung.status == 2
        assert re.search(r"^failed +scheduler +stuck for \d\d s$", hung.out, re.MULTILINE), hung.out
        until(lambda: mgpu.try_mgpu("health").status < 2, "it is well again")
        log = (mgpu.root / "log" / "mgpud.log").read_text()
    assert log.count("event=thread-stuck thread=scheduler") == 1
    assert log.count("event=thread-turns-again thread=scheduler") == 1
