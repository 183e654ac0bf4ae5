"""A thousand pods, placed by the scheduler and then admitted by what each node's mgpud decides by: what the
one chose, the other grants, card by card, and no card ever has more on it than it is.
"""

import json
import random
from collections import Counter
from dataclasses import dataclass, replace

from cluster.resources.inventory import Card, Inventory, Rules
from cluster.scheduler.pods import Container, Pod
from cluster.scheduler.scheduler import Scheduler
from native_sched.daemon.node.config import NodeConfig
from oci_specs import parse, vocabulary
from oci_specs.refusal import Refusal
from oci_specs.request import Request
from placement.cards import CardState, Placement, Tenant
from placement.place import place

PODS = 1000
NODES = 24
CONFIG = NodeConfig()
SIZES_MIB = (16_160, 24_576, 40_960, 81_920)


def offered(number: int) -> Inventory:
    """Every fourth node's GPUs are cut into MIG instances; the others have one to eight."""
    mig = number % 4 == 3
    size = SIZES_MIB[number % 4 if not mig else 2]
    cards = tuple(
        Card(
            index=index,
            minor=index // 3 if mig else index,
            uuid=f"{'MIG' if mig else 'GPU'}-{number}-{index}",
            model=f"m{size}",
            memory_mib=size // 4 if mig else size,
            mig=mig,
        )
        for index in range(6 if mig else 1 + number % 8)
    )
    rules = Rules(policy=CONFIG.policy, placement=CONFIG.placement, max_containers_per_card=16)
    return Inventory(rules=rules, cards=cards)


@dataclass
class Mgpud:
    """The cards of one node with what was granted on them, and no word from the scheduler but annotations."""

    cards: dict[str, CardState]

    @classmethod
    def on(cls, inventory: Inventory) -> "Mgpud":
        return cls(
            {
                card.uuid: CardState(
                    index=card.index,
                    minor=card.minor,
                    uuid=card.uuid,
                    name=card.model,
                    memory_mib=card.memory_mib,
                )
                for card in inventory.cards
            }
        )

    def admit(self, container_id: str, stated: dict[str, str]) -> Placement:
        """Refusal where mgpud would refuse to create the container."""
        request = parse.request(stated, {}, CONFIG, container_id=container_id)
        assert request is not None
        placed = place(request, list(self.cards.values()), CONFIG)
        for share in placed.cards:
            card = self.cards[share.uuid]
            tenant = Tenant(
                container_id=container_id,
                qos=request.qos,
                memory_mib=share.memory_mib,
                core_percent=share.core_percent,
            )
            self.cards[share.uuid] = replace(card, policy=placed.policy, tenants=(*card.tenants, tenant))
        return placed

    def end(self, pod: str) -> None:
        for uuid, card in self.cards.items():
            left = tuple(tenant for tenant in card.tenants if not tenant.container_id.startswith(f"{pod}/"))
            self.cards[uuid] = replace(card, tenants=left, policy=card.policy if left else None)

    def count(self) -> None:
        for card in self.cards.values():
            assert sum(tenant.memory_mib for tenant in card.tenants) <= card.memory_mib
            core: Counter[str] = Counter()
            for tenant in card.tenants:
                core[tenant.qos] += tenant.core_percent or 0
            assert all(percent <= 100 for percent in core.values())
            assert len(card.tenants) <= CONFIG.max_containers_per_card


def asked(chance: random.Random) -> dict[str, str]:
    """What one container's annotations say."""
    count = chance.choice([1, 1, 1, 1, 1, 2, 3])
    found = {}
    kind = chance.choice(["memory", "core", "both", "whole"])
    if count > 1 or kind == "whole":
        found["mgpu.dev/gpus"] = str(count)
    if kind in ("memory", "both"):
        found["mgpu.dev/memory-mib"] = str(chance.randint(4, 100) * 256 * count)
    if kind in ("core", "both"):
        found["mgpu.dev/core"] = str(chance.randint(1, 20) * 5 * count)
    if chance.random() < 0.3:
        found["mgpu.dev/qos"] = "offline"
    if chance.random() < 0.3:
        found["mgpu.dev/policy"] = chance.choice(vocabulary.POLICIES)
    return found


def understood(stated: dict[str, str]) -> Request | None:
    try:
        return parse.request(stated, {}, CONFIG)
    except Refusal:
        return None


def test_mgpud_grants_each_of_a_thousand_pods_the_cards_that_were_chosen() -> None:
    chance = random.Random(13)
    scheduler = Scheduler()
    mgpuds = {}
    for number in range(NODES):
        inventory = offered(number)
        scheduler.put_node(f"n{number}", inventory, 64_000, 262_144)
        mgpuds[f"n{number}"] = Mgpud.on(inventory)
    running: dict[str, str] = {}
    bound = several = 0
    for number in range(PODS):
        name = f"p{number}"
        said = {f"c{each}": asked(chance) for each in range(chance.choice([1, 1, 1, 2, 3]))}
        containers = [
            Container(name=each, request=request)
            for each, stated in said.items()
            if (request := understood(stated)) is not None
        ]
        if len(containers) < len(said):
            continue
        pod = Pod(uid=name, name=name, cpu_milli=chance.randint(0, 8000), containers=tuple(containers))
        scheduler.arrived(pod)
        fits = scheduler.filter(pod, list(mgpuds)).fits
        while not fits:
            ended = chance.choice(list(running))
            mgpuds[running.pop(ended)].end(ended)
            scheduler.remove_pod(ended)
            fits = scheduler.filter(pod, list(mgpuds)).fits if running else list(mgpuds)
        if not running and not scheduler.filter(pod, fits).fits:
            continue
        node = max(scheduler.score(pod, fits), key=lambda scored: scored[1])[0]
        placed = scheduler.choose(pod, node)
        scheduler.put_pod(pod, node, placed)
        running[name] = node
        document = json.dumps(placed)
        for container, stated in said.items():
            identity = {"io.kubernetes.cri.container-name": container}
            granted = mgpuds[node].admit(
                f"{name}/{container}", {**stated, **identity, vocabulary.PLACEMENT: document}
            )
            assert {share.uuid for share in granted.cards} == set(placed[container])
        mgpuds[node].count()
        bound += 1
        several += len(containers) > 1
    assert bound > PODS * 0.8
    assert several > 100
