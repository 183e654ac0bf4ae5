"""Unmodified programs whose container goes on with their data on another card of the node."""

import json

import pytest

from tests.support import arbiter
from tests.support.arbiter import Arbiter
from tests.support.foreign import foreign_bundle
from tests.support.lasting import shared_mgpu
from tests.support.lending import OFFLINE

CAP_MIB = 1024
CONFIG = "offline_overcommit = true\n"


mgpu = shared_mgpu("v100-16:2", node_config=CONFIG)


@pytest.mark.parametrize("script", ["evicted_numba.py", "moved_cuda_core.py"])
def test_program_goes_on_with_its_data_on_either_card(mgpu: Arbiter, script: str) -> None:
    uuids = [card["uuid"] for card in mgpu.listing()["cards"]]
    with foreign_bundle(script, memory_mib=CAP_MIB) as made:
        made.edit(
            lambda config: config["annotations"].update(OFFLINE | {"mgpu.dev/memory-mib": str(CAP_MIB)})
        )
        made.edit(lambda config: config["process"]["env"].remove(f"MGPU_MEMORY_MIB={CAP_MIB}"))
        with made.running(mgpu.runtime) as program:
            before = json.loads(program.line())
            full = sorted(mgpu.used_bytes())
            for there in (1, 0, 1):
                mgpu.mgpu("evict", made.container)
                assert mgpu.used_bytes() == [0, 0]
                program.tell()
                mgpu.mgpu("resume", made.container, "--gpus", uuids[there])
                after = json.loads(program.line())
                if isinstance(after, list):
                    assert after.pop() == uuids[there].replace("-", "").replace("GPU", "GPU-")
                    after.append(before[1])
                assert after == before
                assert mgpu.used_bytes() == [card.used_bytes for card in mgpu.account().cards]
                assert (mgpu.used_bytes()[1 - there], sorted(mgpu.used_bytes())) == (0, full)
            assert program.end() == 0
    arbiter.until_empty(mgpu)
