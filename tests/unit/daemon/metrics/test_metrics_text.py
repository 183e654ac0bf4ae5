"""What a scrape says: every series from the first one on, no series twice, and what is counted only rises."""

import ast
import re
import statistics
import time
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from native_sched.daemon.control.server import Peer
from native_sched.daemon.engine_abi import Refused, SchedState, Usage
from native_sched.daemon.grants.grants import Reclaim, ReclaimState
from native_sched.daemon.metrics.refused import CODES, OTHER
from oci_specs.refusal import Refusal
from oci_specs.request import Identity
from tests.support import promtool
from tests.support.places import REPOSITORY
from tests.unit.metrics_support import MIB, Node, S, node

SCRAPE_MAX_S = 0.020
CONTAINER = "mgpu_container_"
# Modules that a refusal on the way of `admit` can come from.
ADMISSION = (
    *(f"native_sched/daemon/grants/{name}.py" for name in ("admission", "claimed", "claims", "edits")),
    *(f"placement/{name}.py" for name in ("place", "refusals", "room")),
    *(
        f"oci_specs/{name}.py"
        for name in ("parse", "forms", "units", "identity", "vocabulary", "request", "cdi")
    ),
)


@pytest.fixture
def world() -> Iterator[Node]:
    with node() as made:
        yield made


def test_promtool_has_nothing_to_say(world: Node) -> None:
    world.add("c1", 0, 1)
    world.refusals.counts["card-full"] += 1
    assert promtool.complaints(world.text()) == ""


def test_promtool_reports_a_seeded_error() -> None:
    assert "counter" in promtool.complaints("# HELP a_count x\n# TYPE a_count counter\na_count 1\n")
    assert promtool.complaints("a{b=} 1\n")


def test_counters_start_at_zero_with_the_first_scrape(world: Node) -> None:
    for name in (
        "mgpu_log_lines_left_out_total",
        "mgpu_mediated_calls_total",
        "mgpu_preemption_latency_seconds_count",
        "mgpu_resume_failures_total",
        "mgpu_scheduler_polls_total",
        "mgpu_scheduler_turns_total",
        "mgpu_suspend_failures_total",
    ):
        assert list(world.samples(name).values()) == [0], name
    for name, count in (
        ("mgpu_refused_calls_total", len(Refused)),
        ("mgpu_refused_containers_total", len(CODES)),
        ("mgpu_audit_mismatches_total", 2),
        ("mgpu_card_run_seconds_total", 4),
        ("mgpu_card_busy", 4),
        ("mgpu_card_containers", 4),
        ("mgpu_card_memory_used_bytes", 2),
        ("mgpu_preemption_latency_seconds_bucket", 10),
        ("mgpu_parked_seconds_bucket", 10),
        ("mgpu_memory_move_seconds_bucket", 22),
        ("mgpu_memory_away_seconds_bucket", 11),
    ):
        assert list(world.samples(name).values()) == [0] * count, name
    world.add("c1", 0)
    for name in ("run_seconds_total", "suspended_seconds_total", "preemptions_total", "share_ratio"):
        assert world.one(CONTAINER + name, container_id="c1") == 0
    assert len(world.samples(CONTAINER + "refused_calls_total")) == len(Refused)


def test_audits_are_counted_by_card(world: Node) -> None:
    world.engine.counts.audit_mismatches[1] = 3
    assert world.one("mgpu_audit_mismatches_total", card="0", uuid="GPU-0000") == 0
    assert world.one("mgpu_audit_mismatches_total", card="1", uuid="GPU-0001") == 3


def test_openmetrics_is_the_same(world: Node) -> None:
    world.add("c1", 0)
    text = world.text(openmetrics=True)
    assert text.endswith("# EOF\n")
    assert "mgpu_container_memory_limit_bytes{" in text


def test_container_with_all_its_names_on_each_card(world: Node) -> None:
    grant = world.add("c1", 0, 1)
    world.engine.used_bytes[grant.tenant, 1] = 7 * MIB
    limits = world.samples(CONTAINER + "memory_limit_bytes")
    names = {
        "container_id": "c1",
        "namespace": "prod",
        "pod": "web-0",
        "container": "app",
        "class": "online",
        "policy": "fixed-share",
    }
    assert limits == {
        frozenset({**names, "card": str(i), "uuid": f"GPU-000{i}"}.items()): 1024 * MIB for i in (0, 1)
    }
    assert world.one(CONTAINER + "memory_used_bytes", card="1") == 7 * MIB
    assert world.one("mgpu_card_memory_used_bytes", card="1") == 7 * MIB
    assert world.one("mgpu_card_memory_granted_bytes", card="0") == 1024 * MIB
    assert world.one("mgpu_card_memory_bytes", card="0") == 16160 * MIB
    assert list(world.samples(CONTAINER + "run_seconds_total")) == [frozenset(names.items())]


def test_series_end_with_their_container_and_what_it_ran_stays_in_the_cards_sum(world: Node) -> None:
    grant = world.add("c1", 0, 1)
    world.engine.states[grant.tenant] = SchedState(run_ns=3 * S, video_ns=2 * S, busy=1)
    assert world.one("mgpu_card_busy", card="1", **{"class": "online"}) == 1
    assert world.one(CONTAINER + "video_seconds_total") == 2
    world.engine.states[grant.tenant] = SchedState(run_ns=5 * S)
    world.account.look(grant)
    world.grants.remove(grant)
    assert "c1" not in world.text()
    assert world.one("mgpu_card_run_seconds_total", card="1", **{"class": "online"}) == 5
    assert world.one("mgpu_card_run_seconds_total", card="1", **{"class": "offline"}) == 0
    world.pass_s(2)
    assert world.account._seen == {}


def test_counters_do_not_fall_when_a_charge_is_given_back(world: Node) -> None:
    grant = world.add("c1", 0)
    name = CONTAINER + "run_seconds_total"
    seen = []
    for run_ns in (4 * S, 3 * S, 3 * S, 4 * S + 1, 6 * S):
        world.engine.states[grant.tenant] = SchedState(run_ns=run_ns, preemptions=2, suspended_ns=1 * S)
        seen.append(world.one(name))
    assert seen == [4, 4, 4, 4.000000001, 6]
    assert world.one("mgpu_card_run_seconds_total", card="0", **{"class": "online"}) == 6
    assert world.one(CONTAINER + "preemptions_total") == 2
    assert world.one(CONTAINER + "suspended_seconds_total") == 1


def test_share_does_not_depend_on_scrapes(world: Node) -> None:
    grant = world.add("c1", 0)
    state = world.engine.states[grant.tenant] = SchedState()
    for _ in range(30):
        state.run_ns += 2 * S // 4
        world.pass_s(2)
    assert world.one(CONTAINER + "share_ratio") == pytest.approx(0.25)
    assert world.one(CONTAINER + "share_ratio") == pytest.approx(0.25), "a second scrape hears the same"
    world.pass_s(12)
    assert world.one(CONTAINER + "share_ratio") == 0, "idle is zero"
    state.run_ns += 1000 * S
    assert world.one(CONTAINER + "share_ratio") == 1


def test_new_containers_share_counts_from_its_start(world: Node) -> None:
    world.pass_s(100)
    grant = world.add("c1", 0)
    assert world.one(CONTAINER + "share_ratio") == 0
    world.engine.states[grant.tenant] = SchedState(run_ns=S)
    world.clock.now_s += 2
    assert world.one(CONTAINER + "share_ratio") == pytest.approx(0.5)


def test_histogram_is_cumulative(world: Node) -> None:
    for bucket, count in ((0, 1), (2, 5), (9, 2)):
        world.engine.counts.preemption[bucket] = count
    world.engine.counts.preemption_sum_ns = S
    found = {
        dict(key)["le"]: value
        for key, value in world.samples("mgpu_preemption_latency_seconds_bucket").items()
    }
    assert found == {
        "5e-05": 1,
        "0.0001": 1,
        "0.0002": 6,
        "0.0003": 6,
        "0.0005": 6,
        "0.001": 6,
        "0.002": 6,
        "0.005": 6,
        "0.01": 6,
        "+Inf": 8,
    }
    assert world.one("mgpu_preemption_latency_seconds_sum") == 1
    assert world.one("mgpu_preemption_latency_seconds_count") == 8


def test_waits_and_moves_are_histograms(world: Node) -> None:
    world.engine.counts.parked[3], world.engine.counts.parked_ns = 2, 3 * S
    for seconds in (0.05, 0.06, 100):
        world.moved.restoring.note(seconds)
    world.moved.away.note(64)
    assert world.one("mgpu_parked_seconds_bucket", le="0.2") == 0
    assert world.one("mgpu_parked_seconds_bucket", le="0.3") == 2
    assert world.one("mgpu_parked_seconds_sum") == 3
    restored = {"what": "restored"}
    for bound, count in (("0.05", 1), ("0.1", 2), ("60", 2), ("+Inf", 3)):
        assert world.one("mgpu_memory_move_seconds_bucket", le=bound, **restored) == count
    assert world.one("mgpu_memory_move_seconds_sum", **restored) == pytest.approx(100.11)
    assert world.one("mgpu_memory_moves_total", **restored) == 3
    assert world.one("mgpu_memory_away_seconds_bucket", le="60") == 0
    assert world.one("mgpu_memory_away_seconds_bucket", le="120") == 1


def test_memory_that_moves_during_a_scrape_counts_once(world: Node) -> None:
    gives, takes = world.add("c1", 0), world.add("c2", 0)
    gives.reclaim = Reclaim(state=ReclaimState.EVICTING, bytes={0: 12000 * MIB})
    world.engine.used_bytes[gives.tenant, 0] = 12000 * MIB
    before = world.engine.usage

    def moves(tenant: int, card: int) -> Usage:
        found = before(tenant, card)
        if tenant == gives.tenant:
            world.engine.used_bytes |= {(gives.tenant, 0): 4000 * MIB, (takes.tenant, 0): 12000 * MIB}
        return found

    world.engine.usage = moves  # type: ignore[method-assign]
    found = world.families()
    used = {dict(one.labels)["card"]: one.value for one in found["mgpu_card_memory_used_bytes"].samples}
    assert used["0"] == 16000 * MIB
    held = [one.value for one in found["mgpu_container_memory_used_bytes"].samples]
    assert sum(held) == used["0"]
    assert [one.value for one in found["mgpu_container_memory_evicted_bytes"].samples] == [8000 * MIB, 0]


def test_container_created_anew_under_its_name_is_one_series(world: Node) -> None:
    """Prometheus drops a scrape's second sample of a series, and promtool refuses all of it."""
    for state in ("draining", "draining", "bound"):
        grant = world.add("c1", 0, state=state)
    world.engine.used_bytes = {(tenant, 0): MIB for tenant in range(1, 4)}
    world.engine.used_bytes[grant.tenant, 0] = 5 * MIB
    assert world.one(CONTAINER + "memory_used_bytes") == 5 * MIB
    assert world.one("mgpu_card_memory_used_bytes", card="0") == 7 * MIB, "the others hold theirs still"
    assert promtool.complaints(world.text()) == ""


def test_unscheduled_or_gone_container_has_zeros(world: Node) -> None:
    grant = world.add("c1", policy=None)
    del world.engine.states[grant.tenant]
    assert world.one(CONTAINER + "run_seconds_total") == 0
    assert world.samples(CONTAINER + "memory_used_bytes") == {}


NAMES = st.text(max_size=300) | st.text(st.sampled_from('"\\\n\r\x00\ud800\u2028{}=,é'), max_size=20)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(pod=NAMES, container=NAMES, container_id=NAMES)
def test_odd_names_do_not_break_a_scrape(world: Node, pod: str, container: str, container_id: str) -> None:
    grant = world.add(container_id, 0, identity=Identity(pod=pod, namespace=None, container=container))
    try:
        for openmetrics in (False, True):
            lines = world.text(openmetrics=openmetrics).encode().decode().split("\n")
            assert all(line == "" or line.startswith(("#", "mgpu_", "process_")) for line in lines)
            # A name is cut, and each of its characters may need ten for its escape.
            assert max(map(len, lines)) < 20_000
        assert len(world.samples(CONTAINER + "memory_used_bytes")) == 1
    finally:
        world.grants.remove(grant)


def test_refusals_are_counted_by_their_code_and_logged(world: Node) -> None:
    def refuse(code: str, pid: int) -> None:
        def admit(_message: object, _peer: object) -> dict[str, object]:
            raise Refusal(code, "no", "wait")

        with pytest.raises(Refusal):
            world.refusals.counted(admit)({"container_id": "c\n1", "annotations": {}}, Peer(pid, 0))

    for pid in (1, 1, 2):  # the first asks again
        refuse("card-full", pid)
    refuse("never-heard-of", 2)
    assert world.one("mgpu_refused_containers_total", reason="card-full") == 2
    assert world.one("mgpu_refused_containers_total", reason=OTHER) == 1
    assert world.refusals.counted(lambda message, peer: {"action": "pass"})({}, Peer(1, 0)) == {
        "action": "pass"
    }
    assert sum(world.refusals.counts.values()) == 3


def codes_in(path: str) -> set[str]:
    """Codes that the module refuses with: first in a Refusal, or in the quadruples that placement makes one
    of.
    """
    found = set()
    for each in ast.walk(ast.parse((REPOSITORY / path).read_text())):
        parts: list[ast.expr] = []
        if isinstance(each, ast.Call) and isinstance(each.func, ast.Name) and each.func.id == "Refusal":
            parts = each.args
        elif isinstance(each, ast.Tuple) and len(each.elts) == 4:
            parts = each.elts
        code = parts[0].value if parts and isinstance(parts[0], ast.Constant) else None
        # A field's name, such as "fileMode", is no code.
        if isinstance(code, str) and re.fullmatch("[a-z]+(-[a-z]+)*", code):
            found.add(code)
    return found


def test_known_codes_are_those_that_admission_uses() -> None:
    used = set().union(*map(codes_in, ADMISSION))
    assert len(used) > 20
    assert used <= set(CODES), f"not told from the first scrape on: {sorted(used - set(CODES))}"


def test_128_containers_in_20_ms() -> None:
    with node(cards=8) as world:
        for number in range(128):
            world.add(
                f"{number:064x}",
                number // 16,
                identity=Identity(pod=f"pod-{number}", namespace="prod", container="main"),
            )
        text = world.text()
        assert text.count("\nmgpu_container_run_seconds_total{") == 128
        took = []
        for _ in range(9):
            began = time.perf_counter()
            world.text()
            took.append(time.perf_counter() - began)
    assert statistics.median(took) < SCRAPE_MAX_S, took
