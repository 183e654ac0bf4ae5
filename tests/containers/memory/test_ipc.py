"""Two processes of one container have the same memory, as PyTorch's workers and NCCL's ranks do: charged
once, until both have let go, by the ledger, by the card and by what the programs see free.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from tests.support import arbiter
from tests.support.arbiter import Arbiter
from tests.support.programs import Programs
from tests.support.started import Foreground
from tests.support.steady import killed
from tests.support.waiting import until

MIB = 1 << 20
CAP_MIB, SIZE_MIB = 1024, 384
OUT_OF_MEMORY = 2


@dataclass(frozen=True)
class Pair:
    mgpu: Arbiter
    running: Foreground

    def ask(self, who: str, what: str) -> int:
        self.running.tell(f"{who} {what}")
        return int(self.running.line())

    def on_card(self) -> int:
        return sum(card.used_bytes for card in self.mgpu.account().cards)

    def all_agree(self) -> int:
        """Bytes in use: by the card, and by the ledger."""
        on_card = [card.used_bytes for card in self.mgpu.account().cards]
        assert self.mgpu.used_bytes() == on_card
        return on_card[0]


@contextmanager
def pair(mgpu: Arbiter, built: Programs) -> Iterator[Pair]:
    env = {"MGPU_MEMORY_MIB": str(CAP_MIB)}
    with built.bundle("ipc", env=env) as made, made.running(mgpu.runtime) as running:
        assert running.line() == "ready"
        yield Pair(mgpu, running)
    until(lambda: mgpu.containers() == [], "the grant is back")
    assert mgpu.used_bytes() == [card.used_bytes for card in mgpu.account().cards]
    assert mgpu.account().cards[0].used_bytes == 0


@pytest.mark.parametrize(
    ("make", "give", "take", "leave", "left"),
    [
        ("create", "export", "import", ["release", "drop"], ["release", "drop"]),
        ("alloc", "share", "open", ["free"], ["close"]),
    ],
    ids=["descriptor", "handle"],
)
def test_shared_memory_is_charged_once(
    mgpu: Arbiter, built: Programs, make: str, give: str, take: str, leave: list[str], left: list[str]
) -> None:
    with pair(mgpu, built) as two:
        room = two.ask("a", "room")
        contexts = two.all_agree()
        assert two.ask("a", f"{make} {SIZE_MIB}") == 0
        assert two.ask("a", give) == 0
        assert two.ask("b", take) == 0
        assert two.all_agree() == contexts + SIZE_MIB * MIB
        assert [two.ask(who, "room") for who in "ab"] == [room - SIZE_MIB] * 2
        for what in leave:
            assert two.ask("a", what) == 0
        assert two.all_agree() == contexts + SIZE_MIB * MIB
        assert two.ask("b", "room") == room - SIZE_MIB
        assert two.ask("a", f"alloc {room - SIZE_MIB + 1}") == OUT_OF_MEMORY
        for what in left:
            assert two.ask("b", what) == 0
        # The file ends when its last holder's close has come to the card, and the charge a moment later.
        until(
            lambda: sum(mgpu.used_bytes()) == two.on_card() == contexts,
            "the charge ends with the last of both",
        )
        assert two.ask("a", "room") == room


def test_descriptor_alone_keeps_memory_after_both_processes(mgpu: Arbiter, built: Programs) -> None:
    with pair(mgpu, built) as two:
        room = two.ask("a", "room")
        assert two.ask("a", f"create {SIZE_MIB}") == 0
        assert two.ask("a", "export") == 0
        assert two.ask("a", "drop") == 0
        assert two.ask("a", "release") == 0
        # In a message by now, which no process has received.
        assert two.ask("a", "room") == room - SIZE_MIB
        assert two.ask("b", "import") == 0
        assert two.ask("b", "release") == 0
        assert two.ask("a", "room") == room - SIZE_MIB
        assert two.ask("b", "drop") == 0
        until(lambda: two.ask("a", "room") == room, "the charge ends with the descriptor")
        two.all_agree()


def test_shared_memory_survives_a_killed_mgpud(private_host: None, built: Programs) -> None:
    with arbiter.running("v100-16:1") as mgpu, pair(mgpu, built) as two:
        room = two.ask("a", "room")
        assert two.ask("a", f"create {SIZE_MIB}") == 0
        assert two.ask("a", "export") == 0
        assert two.ask("b", "import") == 0
        assert two.ask("a", f"alloc {MIB >> 14}") == 0
        assert two.ask("a", "share") == 0
        before = two.all_agree()
        killed(mgpu, "mgpud")
        assert two.ask("b", "open") == 0
        assert two.all_agree() == before
        assert [two.ask("a", what) for what in ("release", "drop")] == [0, 0]
        assert two.all_agree() == before
        assert two.ask("b", "release") == 0
        assert two.ask("b", "room") == room - SIZE_MIB - (MIB >> 14)
        assert two.ask("b", "drop") == 0
        until(lambda: two.ask("a", "room") == room - (MIB >> 14), "the charge ends with the descriptor")
        two.all_agree()
