"""What nodes of given cards tell of themselves."""

from dataclasses import replace
from typing import Any

from cluster.resources.inventory import Card, Inventory, Rules

RULES = Rules(policy="fixed-share", placement="default", max_containers_per_card=16)


def node(*mib: int, **rules: Any) -> Inventory:
    return Inventory(
        rules=replace(RULES, **rules),
        cards=tuple(
            Card(index=index, uuid=f"GPU-{index}", minor=index, model="Tesla V100", memory_mib=each)
            for index, each in enumerate(mib)
        ),
    )


V100S = node(16160, 16160)
