"""One tenant takes no table of the node's from the others: each has a bound of its own, and these sum up."""

import os
import re
from datetime import UTC, datetime
from typing import Any

import pytest

from mgpu_cli.health import checks
from native_sched.daemon.control import tables
from native_sched.daemon.control.heartbeat import with_holder
from native_sched.daemon.control.server import Peer
from native_sched.daemon.links import share
from native_sched.daemon.links.holder import Listener
from oci_specs.refusal import Refusal
from tests.support.places import REPOSITORY
from tests.unit.arbiter_support import World

# A node of eight cards, each with as many containers as may share one.
CONTAINERS = 8 * 16


def constants() -> dict[str, int]:
    """The enumerators of mgpud's and the holder's C headers that are numbers, or short sums of others."""
    found: dict[str, int] = {}
    folder = REPOSITORY / "native_sched"
    text = "\n".join(
        re.sub(r"/\*.*?\*/", "", each.read_text(), flags=re.DOTALL) for each in folder.rglob("*.h")
    )
    texts = dict(re.findall(r"\b([A-Z][A-Z0-9_]+) =\s*([-0-9A-Z_\s*+<()]+?)\s*[,}]", text))
    for _ in range(4):
        for name, value in texts.items():
            words = re.sub(r"[A-Z][A-Z0-9_]*", lambda word: str(found.get(word[0], word[0])), value)
            if re.fullmatch(r"[-0-9\s*+<()]+", words):
                found[name] = int(eval(" ".join(words.split()), {"__builtins__": {}}))
    return found


C = constants()

# Tables of the node that tenants fill: all there is, and what one container is sure of, and has at most.
TABLES = {
    "listeners": (C["HELD_MAX"], share.SURE, share.MOST),
    "files of the driver": (C["FILES_MAX"], None, C["TENANT_FILES_MAX"]),
    "files of nvidia-uvm": (
        C["NVIDIA_UNPOLLABLE_MAX"],
        C["NVIDIA_TENANT_UNPOLLABLE_SURE"],
        C["NVIDIA_TENANT_UNPOLLABLE_MAX"],
    ),
}


@pytest.mark.parametrize("name", TABLES)
def test_what_containers_are_sure_of_is_there(name: str) -> None:
    every, sure, most = TABLES[name]
    assert most < every
    if sure is not None:
        assert CONTAINERS * sure <= every, "a container is refused what it is sure of"
    else:
        # 64 containers at their bounds: more files than a node's processes have descriptors for.
        assert every >= 64 * most


def test_constants_that_python_has_are_those_of_c() -> None:
    assert C["HELD_MAX"] == share.LISTENERS_MAX
    assert C["FILES_MAX"] == tables.FILES_MAX
    assert share.CONTAINERS == C["NVIDIA_UNPOLLABLE_TENANTS"] == CONTAINERS
    assert (
        C["NVIDIA_UNPOLLABLE_COMMON"] + CONTAINERS * C["NVIDIA_TENANT_UNPOLLABLE_SURE"]
        == C["NVIDIA_UNPOLLABLE_MAX"]
    )


def fill(greedy: int) -> list[int]:
    """How many listeners each container has where the first ones take what they can get."""
    has = [0] * CONTAINERS
    for number in range(greedy):
        while share.may_have_another(has[number], sum(has)):
            has[number] += 1
    return has


@pytest.mark.parametrize("greedy", [1, 16, 64, CONTAINERS])
def test_greedy_containers_leave_others_their_listeners(greedy: int) -> None:
    has = fill(greedy)
    assert max(has) <= share.MOST
    for number in range(greedy, CONTAINERS):
        while has[number] < share.SURE:
            assert share.may_have_another(has[number], sum(has))
            has[number] += 1
    assert sum(has) <= share.LISTENERS_MAX


def exec_of(world: World, grant: Any, number: int) -> bool:
    """Whether its listener is served."""
    fd, other = os.pipe()
    os.close(other)
    before = len(world.engine.listeners)
    world.listeners.take(Listener(number, fd, grant.container_id, grant.nonce, "running"))
    return len(world.engine.listeners) > before


def test_exec_beyond_its_containers_bound_has_no_listener(
    world: World, capfd: pytest.CaptureFixture[str]
) -> None:
    grant = world.granted()
    world.link.held, world.link.mine = share.MOST, share.MOST
    assert exec_of(world, grant, 1)
    world.link.held = world.link.mine = share.MOST + 1
    assert not exec_of(world, grant, 2)
    assert world.link.dropped == [2]
    assert "listener-too-many" in capfd.readouterr().err


def test_where_others_have_taken_much_a_container_has_its_first_ones(world: World) -> None:
    grant = world.granted()
    world.link.held = share.COMMON + 1
    for mine in range(1, share.SURE + 1):
        world.link.mine = mine
        assert exec_of(world, grant, mine)
    world.link.mine = share.SURE + 1
    assert not exec_of(world, grant, 99)


def test_no_container_is_created_that_would_be_left_without_a_listener() -> None:
    held = share.STARTS_MAX - 1
    admit = with_holder(lambda _message, _peer: {"action": "pass"}, lambda: True, lambda: held)
    assert admit({}, Peer(1, 0)) == {"action": "pass"}
    held = share.STARTS_MAX
    with pytest.raises(Refusal) as refused:
        admit({}, Peer(1, 0))
    assert refused.value.code == "listeners-full"


@pytest.mark.parametrize(
    ("used", "state"), [(0, "ok"), (767, "ok"), (768, "attention"), (921, "attention"), (922, "failed")]
)
def test_health_is_red_before_the_end(world: World, used: int, state: str) -> None:
    told = {
        **world.ask("health"),
        "tables": [
            {"name": "listeners", "used": used, "most": share.LISTENERS_MAX},
            {"name": "descriptors", "used": 10, "most": 1024},
        ],
    }
    judged = checks(told, None, missing=[], metrics=True, now=datetime.now(UTC))
    assert [check.state for check in judged if check.name == "tables"] == [state]
    assert share.STARTS_MAX > 0.9 * share.LISTENERS_MAX


def test_health_tells_of_every_table(world: World) -> None:
    found = {one["name"]: one for one in tables.tables(world.served, 7, str(world.folder))}
    assert found["listeners"]["used"] == 7
    assert {"files of the driver", "descriptors"} < set(found)
    assert all(0 <= one["used"] <= one["most"] for one in found.values())
