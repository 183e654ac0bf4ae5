"""How often a call is searched for in the tables of interface.def: a number that only falls."""

import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.native import engine_parts, nvidia_mediated
from tests.native.nvidia_mediated import World, world
from tests.native.rm_params import MEMORY, MIB, ROOT, memory
from tests.support import rm_numbers as nv

COUNTER = Path(__file__).with_name("count_searches.c")
ATTACHED = nv.NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS


@functools.cache
def counting() -> str:
    """The engine over the card, which counts."""
    beside = [*nvidia_mediated.on_card(), COUNTER]
    wrapped = [
        *re.findall(r"^COUNTED\(.*?, (rm_\w+),", COUNTER.read_text(), re.MULTILINE),
        "parked_enter",
        "continued_sent",
    ]
    return engine_parts.library("libcounting.so", *beside, without="host.c", wrapped=wrapped)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr(nvidia_mediated, "library", counting)
    with world(tmp_path) as made:
        yield made


@pytest.mark.parametrize(("call", "at_most"), [("client", 2), ("memory", 2), ("control", 2), ("free", 1)])
def test_call_is_searched_for_once_by_each_number_that_it_names(
    here: World, call: str, at_most: int
) -> None:
    """Its command, and the class or control that is in its outer struct."""
    tenant, client = here.tenant_client()
    calls = {
        "client": lambda: tenant.alloc(0, 0, 0, ROOT).u32(0x28),
        "memory": lambda: tenant.alloc(client, 0xD0, 0xE0, MEMORY, memory(MIB)).u32(0x28),
        "control": lambda: tenant.control(client, client, ATTACHED, bytes(128)).u32(0x1C),
        "free": lambda: tenant.free(client, 0xD1).u32(0xC),
    }
    assert calls[call]() == 0
    assert 0 < here.lib.searches() <= at_most
