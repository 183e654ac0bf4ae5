"""The node's cards follow the driver while mgpud runs."""

import asyncio
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace

import pytest

from native_sched.daemon.grants import card_watch
from native_sched.daemon.grants.admission import Admission
from native_sched.daemon.grants.card_watch import CardWatch
from native_sched.daemon.grants.claims import Claims
from native_sched.daemon.log import Log
from native_sched.daemon.node import inventory
from native_sched.daemon.node.config import NodeConfig
from native_sched.daemon.node.inventory import CardInfo, Found
from native_sched.daemon.node.state import NodeState
from oci_specs.refusal import Refusal
from tests.unit.arbiter_support import CARDS, World

VERSION = "580.95.05"
NEW = CardInfo(index=0, minor=2, uuid="GPU-new", name="A10", memory_mib=23028, gpu_id=11)


@dataclass
class Driver:
    """The driver's answers, and the outcome."""

    world: World
    cards: list[CardInfo] = field(default_factory=lambda: list(CARDS))
    lost: set[str] = field(default_factory=set)
    version: str = VERSION
    added: list[CardInfo] = field(default_factory=list)
    renewed: int = 0
    refuses: bool = False

    def __post_init__(self) -> None:
        self.log = Log()
        self.watch = CardWatch(
            self.world.served, VERSION, self.find, self.add, renewed=self.renew, log=self.log
        )

    def find(self, without: Collection[int]) -> Found:
        self.without = set(without)
        return Found(self.version, self.cards, frozenset(self.lost))

    def add(self, card: CardInfo) -> tuple[CardInfo, dict[str, list[int]]]:
        if self.refuses:
            raise OSError(19, "No such device")
        self.added.append(card)
        return replace(card, context_bytes=7), {card.uuid: [7, 0]}

    def renew(self) -> None:
        self.renewed += 1

    def look(self) -> None:
        self.world.loop.run_until_complete(self.watch.look())

    def events(self) -> list[str]:
        return [entry.event for entry in self.log.recent()]

    @property
    def uuids(self) -> list[str]:
        return [card["uuid"] for card in self.world.ask("inventory")["cards"]]


@pytest.fixture
def driver() -> Iterator[Driver]:
    world = World(NodeConfig())
    yield Driver(world)
    world.close()


def test_nothing_changes_while_the_driver_says_the_same(driver: Driver) -> None:
    driver.look()
    assert (driver.added, driver.watch.closed.lost, driver.world.served.cards) == ([], set(), CARDS)


def test_new_card_is_served_and_takes_containers(driver: Driver) -> None:
    driver.cards = [NEW, *(replace(card, index=card.index + 1) for card in CARDS)]
    driver.look()
    driver.look()
    assert [(card.index, card.uuid) for card in driver.added] == [(len(CARDS), "GPU-new")]
    assert driver.uuids == [*(card.uuid for card in CARDS), "GPU-new"]
    assert driver.world.state.now.contexts == {"GPU-new": [7, 0]}
    grant = driver.world.granted(MGPU_MEMORY_MIB="20000", NVIDIA_VISIBLE_DEVICES="GPU-new")
    assert [card.index for card in grant.cards] == [len(CARDS)]


def test_card_that_the_engine_does_not_take_is_reported_once(driver: Driver) -> None:
    driver.cards.append(NEW)
    driver.refuses = True
    for _ in range(3):
        driver.look()
    assert driver.events() == ["card-not-added"]
    driver.refuses = False
    driver.look()
    assert "GPU-new" in driver.uuids


@pytest.mark.parametrize("still_listed", [True, False])
def test_lost_card_stays_listed_and_takes_no_container(driver: Driver, still_listed: bool) -> None:
    if still_listed:
        driver.lost = {CARDS[1].uuid}
    else:
        del driver.cards[1]
    driver.look()
    driver.look()
    assert driver.watch.closed.lost == {1}
    assert driver.events() == ["card-lost"]
    assert driver.world.engine.released == [1]
    assert len(driver.uuids) == len(CARDS)
    states = driver.world.served.card_states([], without=driver.watch.closed.lost)
    assert CARDS[1].uuid not in [state.uuid for state in states]


def test_card_is_back_once_no_container_of_its_loss_is_left(driver: Driver) -> None:
    grant = driver.world.granted(MGPU_MEMORY_MIB="512", NVIDIA_VISIBLE_DEVICES=CARDS[1].uuid)
    driver.lost = {CARDS[1].uuid}
    driver.look()
    driver.lost = set()
    driver.look()
    assert driver.watch.closed.lost == {1}
    assert driver.added == []
    driver.world.grants.remove(grant)
    driver.look()
    assert [*driver.watch.closed] == []
    assert [card.index for card in driver.added] == [1]
    assert driver.world.served.cards[1].context_bytes == 7, "as it was taken anew"


def mig(number: int, memory_mib: int = 4096) -> CardInfo:
    return replace(CARDS[1], index=number, uuid=f"MIG-{number}", memory_mib=memory_mib, instance=(number, 0))


def test_mig_instances_replace_their_card_once_it_is_free(driver: Driver) -> None:
    grant = driver.world.granted(MGPU_MEMORY_MIB="512", NVIDIA_VISIBLE_DEVICES=CARDS[1].uuid)
    driver.cards = [CARDS[0], mig(1), mig(2)]
    driver.look()
    assert driver.watch.closed.lost == {1}
    driver.world.grants.remove(grant)
    driver.look()
    assert driver.uuids == [CARDS[0].uuid, "MIG-1", "MIG-2"]
    assert driver.watch.closed.lost == set()
    assert [card.index for card in driver.added] == [2, 3]


def test_instance_made_again_has_its_number(driver: Driver) -> None:
    for cards in ([CARDS[0], mig(1)], [CARDS[0]], [CARDS[0], mig(1)]):
        driver.cards = cards
        driver.look()
    assert [(card.index, card.uuid) for card in driver.world.served.cards] == [
        (0, CARDS[0].uuid),
        (2, "MIG-1"),
    ]
    assert [card.index for card in driver.added] == [2, 2]
    assert driver.world.engine.released == [1, 2]


def test_instance_whose_memory_changed_is_another_card(driver: Driver) -> None:
    """A second compute instance takes half of what the first one had."""
    for cards in ([CARDS[0], mig(1)], [CARDS[0], mig(1, memory_mib=2048), mig(2, memory_mib=2048)]):
        driver.cards = cards
        driver.look()
    assert [(card.index, card.uuid, card.memory_mib) for card in driver.world.served.cards[1:]] == [
        (3, "MIG-1", 2048),
        (4, "MIG-2", 2048),
    ]


def test_another_driver_is_the_next_mgpuds(driver: Driver) -> None:
    driver.look()
    assert (driver.renewed, driver.added) == (0, [])
    driver.version = "590.48.01"
    driver.look()
    assert (driver.renewed, driver.added) == (1, [])
    driver.version = VERSION
    driver.world.engine.driver_alive = False
    driver.look()
    assert driver.renewed == 2


def test_without_an_answer_all_stays_as_it_was(driver: Driver) -> None:
    def gone(_without: Collection[int]) -> Found:
        raise Refusal("no-driver", "NVML does not start", "load the driver")

    driver.watch._find = gone
    driver.look()
    assert (driver.events(), driver.watch.closed.lost, driver.renewed) == (["cards-not-seen"], set(), 0)


def test_message_has_the_driver_asked_at_once(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(card_watch, "LOOK_S", 3600)

    async def hinted() -> None:
        task = asyncio.create_task(driver.watch.run())
        await asyncio.sleep(0.1)
        driver.cards.append(NEW)
        driver.watch.hint()
        async with asyncio.timeout(60):
            while not driver.added:
                await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    driver.world.loop.run_until_complete(hinted())
    assert driver.added


def test_drained_card_is_released_once_it_is_empty_and_then_left_alone(driver: Driver) -> None:
    grant = driver.world.granted(MGPU_MEMORY_MIB="512", NVIDIA_VISIBLE_DEVICES=CARDS[1].uuid)
    driver.watch.drain([1], drained=True)
    driver.look()
    assert (driver.without, driver.world.engine.released) == (set(), [])
    driver.world.grants.remove(grant)
    for _ in range(2):
        driver.look()
    assert (driver.without, driver.world.engine.released) == ({CARDS[1].gpu_id}, [1])
    # Reset or not, it is not looked at.
    driver.cards = [CARDS[0]]
    driver.look()
    assert (driver.watch.closed.lost, driver.added) == (set(), [])
    driver.cards = list(CARDS)
    driver.watch.drain([1], drained=False)
    assert 1 in driver.watch.closed, "no container comes before it is taken back"
    driver.look()
    assert [*driver.watch.closed] == []
    assert [card.index for card in driver.added] == [1]


def test_card_that_is_not_there_after_its_drain_is_lost(driver: Driver) -> None:
    driver.watch.drain([1], drained=True)
    driver.look()
    driver.cards = [CARDS[0]]
    driver.watch.drain([1], drained=False)
    driver.look()
    assert driver.watch.closed.lost == {1}
    driver.cards = list(CARDS)
    driver.look()
    assert [*driver.watch.closed] == []


def test_where_all_cards_are_drained_the_driver_is_not_asked_and_the_next_mgpud_comes(
    driver: Driver,
) -> None:
    driver.watch.drain([0, 1], drained=True)
    driver.watch._find = lambda _without: pytest.fail("the driver was asked")
    for _ in range(2):
        driver.look()
    assert (driver.world.engine.released, driver.renewed) == ([0, 1], 0)
    driver.watch.drain([0], drained=False)
    driver.look()
    assert (driver.renewed, driver.added) == (1, [])


def test_undone_before_it_was_empty_changes_nothing(driver: Driver) -> None:
    driver.world.granted(MGPU_MEMORY_MIB="512", NVIDIA_VISIBLE_DEVICES=CARDS[1].uuid)
    driver.world.granted("c2", MGPU_MEMORY_MIB="512", NVIDIA_VISIBLE_DEVICES=CARDS[0].uuid)
    driver.watch.drain([0, 1], drained=True)
    driver.look()
    driver.watch.drain([0, 1], drained=False)
    driver.look()
    assert (driver.world.engine.released, driver.renewed, [*driver.watch.closed]) == ([], 0, [])


def test_instances_of_a_gpu_are_drained_together(driver: Driver) -> None:
    driver.cards = [CARDS[0], mig(1), mig(2)]
    driver.look()
    driver.watch.drain([2], drained=True)
    assert driver.watch.closed.drained == {2, 3}
    driver.watch.drain([3], drained=False)
    assert driver.watch.closed.drained == set()


def test_drain_is_written_down_for_the_next_mgpud_or_not_made(driver: Driver) -> None:
    driver.watch.drain([1], drained=True)
    found = NodeState(str(driver.world.folder / "node-state.json")).now.drained
    assert {uuid: inventory.recorded(card) for uuid, card in found.items()} == {CARDS[1].uuid: CARDS[1]}
    after = CardWatch(driver.world.served, VERSION, driver.find, driver.add)
    assert after.closed.drained == {1}
    driver.world.folder.rename(driver.world.folder.with_name("elsewhere"))
    with pytest.raises(FileNotFoundError):
        driver.watch.drain([1], drained=False)
    driver.world.folder.with_name("elsewhere").rename(driver.world.folder)
    assert driver.watch.closed.drained == {1}


def test_container_on_a_drained_card_is_refused_with_what_to_do(driver: Driver) -> None:
    world = driver.world
    claims = Claims(str(world.folder / "claims"), world.grants)
    admission = Admission(world.served, lambda _cards: {"mounts": []}, claims, driver.watch.closed)
    asks = {"container_id": "c9", "rootfs": "/r", "annotations": {}, "reach": []}

    def admitted(**env: str) -> list[int]:
        grant = admission.admit({**asks, "env": {"MGPU_MEMORY_MIB": "512", **env}})
        assert grant is not None
        return [card.index for card in grant.cards]

    driver.watch.drain([0], drained=True)
    assert admitted() == [1]
    with pytest.raises(Refusal, match=r"GPU 0 \(GPU-0\) is drained"):
        admitted(NVIDIA_VISIBLE_DEVICES="0")
    driver.watch.drain([1], drained=True)
    with pytest.raises(Refusal, match="is drained"):
        admitted()
    with pytest.raises(Refusal, match="is drained"):
        admitted(MGPU_GPUS=CARDS[1].uuid)


def test_watch_ends_although_a_hint_comes_at_that_moment(driver: Driver) -> None:
    async def ends() -> None:
        task = asyncio.create_task(driver.watch.run())
        await asyncio.sleep(0.1)
        driver.watch.hint()
        task.cancel()
        await asyncio.wait([task], timeout=1)
        assert task.cancelled()

    asyncio.run(ends())
