"""What the scores are made of: counts from the cards' states, kept up to date, weighed by a learned mix."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.scheduler import mix as mix_module
from cluster.scheduler import scheduler as module
from cluster.scheduler.fragmentation import Fragmentation
from cluster.scheduler.kinds import Kinds
from cluster.scheduler.mix import Kind, Mix
from cluster.scheduler.occupancy import Occupancy, with_tenant
from cluster.scheduler.scheduler import Scheduler
from cluster.scheduler.states import States
from cluster.scheduler.table import Table
from cluster.scheduler.ways import without_cards
from oci_specs.request import Request
from placement import room
from placement.cards import CardState
from placement.rules import Rules
from tests.cluster.scheduler_support import A100_MIB, inventory, pod, request, requests

EMPTY = CardState(index=0, minor=0, uuid="GPU-0", name="A100", memory_mib=A100_MIB)


def filled(card: CardState, asked: Request, rules: Rules) -> int:
    """How many fit one after another, by mgpud's own rules."""
    times = 0
    while room.examine(asked, card, asked.count or 1, rules).lack is None:
        card = with_tenant(card, asked, asked.count or 1, rules, f"t{times}")
        times += 1
    return times


@settings(max_examples=100, deadline=None)
@given(st.lists(requests(), max_size=5), requests(), st.sampled_from([2, 16]))
def test_card_holds_as_many_as_mgpuds_rules_let_in(there: list[Request], asked: Request, most: int) -> None:
    rules = Rules(max_containers_per_card=most)
    card = EMPTY
    for number, each in enumerate(there):
        if room.examine(each, card, each.count or 1, rules).lack is None:
            card = with_tenant(card, each, each.count or 1, rules, f"there{number}")
    states = States()
    number = states.of(card, rules)
    kinds = Kinds([(Kind(asked, 1000, None), 1.0)], A100_MIB)
    [[times]] = kinds.times(states.features[number : number + 1])
    assert times == filled(card, asked, rules)


def test_pods_of_a_node_are_counted_by_cards_and_by_cpu() -> None:
    kinds = Kinds(
        [
            (Kind(request(core=25), 4000, None), 0.5),
            (Kind(request(count=2), 4000, None), 0.25),
            (Kind(request(core=25), 40_000, None), 0.25),
        ],
        A100_MIB,
    )
    states = States()
    full = states.features[[states.of(EMPTY, Rules())]]
    times = kinds.times(full) * 3
    # Twelve quarters and one pair; CPU for 2.5, and for none of the largest.
    assert kinds.pods(times, np.array([10_000], dtype=np.float32)).tolist() == [[2.5, 0, 1]]
    assert kinds.pods(times, np.array([99_000], dtype=np.float32))[0].tolist() == pytest.approx(
        [12, 99 / 40, 1]
    )


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(requests(), st.integers(0, 3), st.booleans()), max_size=25))
def test_counts_kept_up_to_date_equal_those_made_anew(
    arrivals: list[tuple[Request, int, bool]],
) -> None:
    kept = Scheduler()
    names = [f"n{number}" for number in range(4)]
    for number, name in enumerate(names):
        kept.put_node(name, inventory(name, 1 + number, model=f"m{number % 2}"), 64_000, 262_144)
    placed = {}
    for number, (asked, node, ends) in enumerate(arrivals):
        wanted = pod(f"p{number}", asked)
        kept.arrived(wanted)
        kept.score(wanted, names)
        if names[node] in kept.filter(wanted, names).fits:
            kept.put_pod(wanted, names[node], kept.choose(wanted, names[node]))
            placed[wanted.uid] = wanted
        if ends and placed:
            uid, ended = placed.popitem()
            kept.ended(ended)
            kept.remove_pod(uid)
    # What came since the mix was last weighed counts in both.
    kept._mix.version += 1
    anew = Fragmentation(kept._table, kept._mix)
    ways = without_cards(kept._table.rows(names))
    before = kept._fragmentation.losses(ways, 1000)
    np.testing.assert_allclose(anew.losses(ways, 1000), before, rtol=1e-3)


def test_models_that_few_pods_can_do_without_are_kept_for_them() -> None:
    learned = Scheduler()
    for number in range(4):
        learned.put_node(f"t4-{number}", inventory(f"t4-{number}", 2, model="T4"), 104_000, 262_144)
        learned.put_node(f"g2-{number}", inventory(f"g2-{number}", 8, model="G2"), 96_000, 262_144)
    for number in range(40):
        learned.arrived(pod(f"any{number}", request(core=50), cpu_milli=8000))
        learned.arrived(pod(f"t4{number}", request(core=50), cpu_milli=8000, models=["T4"]))
    anywhere = pod("anywhere", request(core=50), cpu_milli=8000)
    best = learned.best(anywhere, list(learned.occupancy.nodes))
    assert best is not None
    assert best.startswith("g2")


def test_node_of_many_gpus_stays_whole_where_most_gpus_are_asked_for_together() -> None:
    learned = Scheduler("fgd")
    for number in range(10):
        learned.put_node(f"g2-{number}", inventory(f"g2-{number}", 8, model="G2"), 96_000, 1 << 20)
        learned.put_node(f"t4-{number}", inventory(f"t4-{number}", 1, model="T4"), 12_000, 1 << 20)
    for number in range(40):
        learned.arrived(pod(f"t4{number}", request(), models=["T4"]))
    for number in range(20):
        learned.arrived(pod(f"eight{number}", request(count=8), cpu_milli=8_000))
    best = learned.best(pod("anywhere", request()), list(learned.occupancy.nodes))
    assert best is not None
    assert best.startswith("t4")


@pytest.mark.parametrize("late", [False, True])
def test_nodes_stay_whole_though_nobody_has_asked_for_one(*, late: bool) -> None:
    learned = Scheduler("fgd")
    learned.put_node("small", inventory("small", 1), 12_000, 1 << 20)
    ones = [pod(f"one{number}", request(), cpu_milli=8_000) for number in range(200)]
    if late:
        for one in ones:
            learned.arrived(one)
        learned.best(ones[0], list(learned.occupancy.nodes))
    for name in ("whole", "broken"):
        learned.put_node(name, inventory(name, 8), 96_000, 1 << 20)
    # More of its CPU is taken than of its GPUs, so that the pods to come would sooner do without the other's.
    learned.put_pod(pod("there", request(), cpu_milli=24_000), "broken", {"c0": ("GPU-broken-0",)})
    for one in ones:
        learned.arrived(one)
    assert learned.best(ones[0], ["whole", "broken"]) == "broken"


def test_whole_nodes_that_nobody_asks_for_have_no_share() -> None:
    one, four = Kind(request(), 1000, None), Kind(request(count=4), 4000, None)
    kinds = Kinds([(one, 1.0)], A100_MIB, [four])
    assert kinds.request[kinds.whole].tolist() == [kinds.requests.index(four.request)]
    assert kinds.share_of_kind[kinds.whole].tolist() == [0]
    assert Kinds([(one, 0.75), (four, 0.25)], A100_MIB, [four]).share_of_kind.tolist() == [0.75, 0.25]


def test_rest_of_a_broken_node_is_kept_for_those_that_would_break_another() -> None:
    learned = Scheduler("fgd")
    for number in range(10):
        learned.put_node(f"g2-{number}", inventory(f"g2-{number}", 8, model="G2"), 96_000, 1 << 20)
    for number in range(50):
        learned.put_node(f"t4-{number}", inventory(f"t4-{number}", 2, model="T4"), 24_000, 1 << 20)
    for number in range(7):
        learned.put_pod(pod(f"there{number}", request()), "g2-0", {"c0": (f"GPU-g2-0-{number}",)})
        learned.arrived(pod(f"g2{number}", request(), models=["G2"]))
    for number in range(10):
        learned.arrived(pod(f"one{number}", request()))
        learned.arrived(pod(f"pair{number}", request(count=2), cpu_milli=2_000))
    for number in range(60):
        learned.arrived(pod(f"eight{number}", request(count=8), cpu_milli=8_000))
    best = learned.best(pod("anywhere", request()), list(learned.occupancy.nodes))
    assert best is not None
    assert best.startswith("t4")


def test_cpu_is_kept_for_the_few_that_make_most_gpus_of_it_where_it_is_out_three_times_sooner() -> None:
    learned = Scheduler("fgd")
    # Six CPUs for eight GPUs, of use to the modest pod alone; and nineteen for two, of which three are spare.
    learned.put_node("frugal", inventory("frugal", 8), 6_000, 1 << 20)
    learned.put_node("rich", inventory("rich", 2), 19_000, 1 << 20)
    learned.arrived(pod("modest", request(), cpu_milli=1_000))
    for number in range(999):
        learned.arrived(pod(f"hungry{number}", request(), cpu_milli=8_000))
    assert learned.best(pod("other", cpu_milli=4_000), ["frugal", "rich"]) == "rich"


def test_whole_gpu_is_kept_for_pods_that_take_much_of_a_cpu_that_will_be_left_over() -> None:
    learned = Scheduler("fgd")
    # Nine CPUs for two halves, fifteen for a whole GPU; and a thousand where no GPU is left.
    for name, gpus, cpu_milli in (("halves", 2, 9_000), ("whole", 1, 15_000), ("full", 1, 1_000_000)):
        learned.put_node(name, inventory(name, gpus), cpu_milli, 1 << 20)
    for number in range(2):
        taken = pod(f"half{number}", request(core=50))
        learned.put_pod(taken, "halves", {"c0": (f"GPU-halves-{number}",)})
    learned.put_pod(pod("all", request()), "full", {"c0": ("GPU-full-0",)})
    for number in range(60):
        learned.arrived(pod(f"lean{number}", request(core=50), cpu_milli=1_000))
    for number in range(40):
        learned.arrived(pod(f"fat{number}", request(), cpu_milli=8_000))
    assert learned.best(pod("other", cpu_milli=8_000), ["halves", "whole"]) == "halves"


def test_card_in_use_is_filled_before_another_is_begun() -> None:
    learned = Scheduler()
    for name in ("n0", "n1"):
        learned.put_node(name, inventory(name, 4), 64_000, 262_144)
    for number in range(20):
        learned.arrived(pod(f"half{number}", request(core=50)))
        learned.arrived(pod(f"whole{number}", request()))
    learned.put_pod(pod("first", request(core=50)), "n1", {"c0": ("GPU-n1-2",)})
    second = pod("second", request(core=50))
    assert learned.best(second, ["n0", "n1"]) == "n1"
    assert learned.choose(second, "n1") == {"c0": ("GPU-n1-2",)}


def test_mix_counts_the_frequent_kinds_and_forgets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mix_module, "_REMEMBERED", 100)
    mix = Mix()
    for number in range(30):
        mix.arrived(pod(f"a{number}", request(core=50), cpu_milli=2000))
    for number in range(10):
        mix.arrived(pod(f"b{number}", request(core=50), request(core=10), cpu_milli=2000))
    shares = dict(mix.kinds())
    assert shares[Kind(request(core=50), 2000, None)] == 0.6
    assert shares[Kind(request(core=50), 1000, None)] == 0.2
    assert shares[Kind(request(core=10), 1000, None)] == 0.2
    for number in range(2_000):
        mix.arrived(pod(f"c{number}", request(), cpu_milli=1000))
    assert list(dict(mix.kinds())) == [Kind(request(), 1000, None)]


def test_turnover_is_of_those_that_came_and_remembered_as_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mix_module, "_REMEMBERED", 100)
    mix = Mix()
    one, other = pod("one", request()), pod("other")
    for _ in range(150):
        mix.arrived(one)
        mix.arrived(other)
    assert mix.turnover == 0
    for _ in range(60):
        mix.ended(one)
        mix.ended(other)
    assert mix.turnover == 60 / 150
    for _ in range(50):
        mix.arrived(one)
    assert mix.turnover == 30 / 100
    for _ in range(1000):
        mix.ended(one)
    assert mix.turnover == 1


@pytest.mark.parametrize(("ends", "best"), [(False, "nearly"), (True, "half")])
def test_nodes_that_will_soon_be_whole_are_left_alone_where_pods_end(*, ends: bool, best: str) -> None:
    learned = Scheduler("fgd")
    for name, there in (("nearly", 1), ("half", 4)):
        learned.put_node(name, inventory(name, 8), 96_000, 1 << 20)
        for number in range(there):
            learned.put_pod(pod(f"{name}{number}", request()), name, {"c0": (f"GPU-{name}-{number}",)})
    for number in range(200):
        came = pod(f"p{number}", request(count=8 if number % 40 == 0 else 1), cpu_milli=1000)
        learned.arrived(came)
        if ends:
            learned.ended(came)
    assert learned.best(pod("anywhere", request(), cpu_milli=1000), ["nearly", "half"]) == best


def test_states_of_times_past_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_STATES_LEAST", 50)
    scheduler = Scheduler()
    scheduler.put_node("n0", inventory("n0", 2), 64_000, 262_144)
    for number in range(200):
        wanted = pod(f"p{number}", request(memory=256 + number))
        scheduler.put_pod(wanted, "n0", scheduler.choose(wanted, "n0"))
        assert scheduler.filter(wanted, ["n0"]).fits == ["n0"]
        scheduler.remove_pod(wanted.uid)
    assert len(scheduler._table.cards) <= 60


def test_states_in_use_are_not_forgotten_where_every_card_is_in_one_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_STATES_LEAST", 50)
    scheduler = Scheduler()
    for number in range(100):
        lends = inventory(f"n{number}", 1, online_mib=256 * number)
        scheduler.put_node(f"n{number}", lends, 64_000, 262_144)
    table = scheduler._table
    for number in range(20):
        wanted = pod(f"p{number}", request(memory=8192, qos="offline", reclaimable=True))
        scheduler.put_pod(wanted, f"n{number}", scheduler.choose(wanted, f"n{number}"))
    assert scheduler._table is table
    assert len(table.cards.in_use) > module._STATES_LEAST


def test_occupancy_is_the_same_in_whichever_order_they_are_told() -> None:
    one, other = Occupancy(), Occupancy()
    running = pod("p", request(core=50, memory=8192))
    placed = {"c0": ("GPU-n0-1",)}
    one.put_node("n0", inventory("n0", 2), 64_000, 262_144)
    one.put_pod(running, "n0", placed)
    other.put_pod(running, "n0", placed)
    other.put_pod(running, "n0", placed)
    other.put_node("n0", inventory("n0", 2), 64_000, 262_144)
    assert one.nodes == other.nodes
    other.remove_node("n0")
    assert other.nodes["n0"].cards == []
    other.put_node("n0", inventory("n0", 2), 64_000, 262_144)
    assert one.nodes == other.nodes
    other.remove_pod("p")
    other.remove_pod("p")
    assert [card.tenants for card in other.nodes["n0"].cards] == [(), ()]
    assert other.nodes["n0"].cpu_free_milli == 64_000


def test_row_is_used_again_once_its_node_has_gone() -> None:
    occupancy, table = Occupancy(), Table()
    for number in range(50):
        table.put(occupancy.put_node(f"n{number}", inventory(f"n{number}", 1), 1000, 1000))
        gone = occupancy.remove_node(f"n{number}")
        assert gone is not None
        table.put(gone)
    assert len(table) == 1
    assert not table.cards.in_use.size
