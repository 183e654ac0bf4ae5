"""Memory that other devices' drivers reach (GPUDirect RDMA, GDRCopy): a container with a whole card has it,
for its own process, and a share does not.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from sim import cards
from tests.support import arbiter
from tests.support import rm_numbers as nv
from tests.support.arbiter import Arbiter
from tests.support.programs import Programs
from tests.support.started import Foreground
from tests.support.waiting import until

ADDRESS, BYTES = 0x7F0000000000, 4 << 20
SHARE, WHOLE = {"MGPU_MEMORY_MIB": "1024"}, {"MGPU_GPUS": "1"}


@contextmanager
def reached(mgpu: Arbiter, built: Programs, env: dict[str, str]) -> Iterator[Foreground]:
    with built.bundle("reached", env=env) as made, made.running(mgpu.runtime) as running:
        yield running


def known(mgpu: Arbiter) -> list[dict[str, list[object]]]:
    """Of each such object which processes drivers may act for, and what they reach."""
    found: list[dict[str, list[object]]] = cards.ask(mgpu.root / "sim" / "admin.sock", "third_parties")
    return found


@pytest.mark.parametrize("version", ["535.261.03", "580.142", "595.45.04"])
def test_whole_cards_memory_is_reached_for_the_process_that_has_it(
    private_host: None, built: Programs, version: str
) -> None:
    with arbiter.running("a10", sim_options=[f"driver-version={version}"]) as mgpu:
        with reached(mgpu, built, WHOLE) as running:
            refused = nv.NV_ERR_INSUFFICIENT_PERMISSIONS
            assert running.line() == f"object 0 space 0 token 0xfe00 memory 0 of {refused:#x}"
            [container] = mgpu.containers()
            [one] = known(mgpu)
            assert container["pid"] in one["tgids"]
            assert one["ranges"] == [[ADDRESS, BYTES]]
            running.tell()
            assert running.line() == "freed 0"
            assert [one["ranges"] for one in known(mgpu)] == [[]]
        until(lambda: known(mgpu) == [], "it ends with its container")


@pytest.mark.parametrize(
    ("env", "version"), [(SHARE, "580.142"), (WHOLE, "610.43.03")], ids=["share", "610"]
)
def test_what_is_not_known_or_shared_is_not_supported(
    private_host: None, built: Programs, env: dict[str, str], version: str
) -> None:
    """In the words that libcuda starts with."""
    with arbiter.running("a10", sim_options=[f"driver-version={version}"]) as mgpu:
        with reached(mgpu, built, env) as running:
            said = running.line()
            assert said.startswith(f"object {nv.NV_ERR_NOT_SUPPORTED:#x} "), said
            assert known(mgpu) == []
