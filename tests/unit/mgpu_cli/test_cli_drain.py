"""`mgpu drain GPU` and `mgpu undrain GPU`: what they ask of mgpud, and what they wait for."""

from typing import Any

import pytest

from mgpu_cli import drain as drain_command
from tests.unit.cli_support import CARD_UUIDS, FakeMgpud, card, container, list_reply, mgpu

OK = {"version": 1, "ok": True}
HELD = container()
ON = {"drained": True, "released": False, "lost": False}
LET_GO = {**ON, "released": True, "containers": 0}
BACK = {"drained": False, "released": False, "lost": False, "containers": 0}


@pytest.fixture
def mgpud(mgpud: FakeMgpud, monkeypatch: pytest.MonkeyPatch) -> FakeMgpud:
    monkeypatch.setattr(drain_command, "POLL_S", 0.001)
    mgpud.reply(OK)
    return mgpud


def listed(held: list[dict[str, Any]], **changed: Any) -> dict[str, Any]:
    return list_reply(held, [card(**changed), card(index=1, uuid="GPU-other", containers=1)])


def told(mgpud: FakeMgpud) -> list[tuple[list[int], bool]]:
    return [(ask["cards"], ask["drained"]) for ask in mgpud.asked if ask["verb"] == "drain"]


@pytest.mark.parametrize("name", ["0", CARD_UUIDS[0][:10].lower()])
def test_drain_waits_for_the_containers_of_that_gpu_and_for_mgpud(mgpud: FakeMgpud, name: str) -> None:
    empty = listed([], **ON, containers=0)
    mgpud.reply_to("list", *[listed([HELD], **ON)] * 5, *[empty] * 3, listed([], **LET_GO))
    done = mgpu("drain", name)
    assert (done.exit_code, told(mgpud)) == (0, [([0], True)]), done.output
    assert done.output == (
        "waiting: 1 container holds GPU 0: 0123456789ab\nGPU 0: drained; mgpud has nothing of it open\n"
    )


def test_lost_gpu_is_not_drained_while_a_container_has_it(mgpud: FakeMgpud) -> None:
    lost = {**ON, "lost": True, "released": True}
    mgpud.reply_to("list", *[listed([HELD], **lost)] * 3, listed([], **LET_GO))
    assert mgpu("drain", "0").output.startswith("waiting: 1 container holds GPU 0")


def test_undrain_waits_until_it_is_served(mgpud: FakeMgpud) -> None:
    mgpud.reply_to(
        "list", *[listed([], **LET_GO)] * 3, listed([], **{**BACK, "released": True}), listed([], **BACK)
    )
    done = mgpu("undrain", "0")
    assert (done.output, told(mgpud)) == ("GPU 0: takes containers\n", [([0], False)])


def test_undrain_says_that_the_driver_has_it_not(mgpud: FakeMgpud) -> None:
    mgpud.reply_to("list", listed([], **LET_GO), listed([], **{**BACK, "lost": True, "released": True}))
    done = mgpu("undrain", "0")
    assert (done.exit_code, "the driver does not have it" in done.output) == (1, True)


def test_all_gpus_are_all(mgpud: FakeMgpud) -> None:
    gone = list_reply([], [card(**LET_GO), card(**{**LET_GO, "index": 1})])
    mgpud.reply_to("list", gone)
    assert mgpu("drain", "--all").output == "GPU 0, 1: drained; mgpud has nothing of it open\n"
    assert told(mgpud) == [([0, 1], True)]


@pytest.mark.parametrize("words", [("drain", "7"), ("undrain", "GPU-")])
def test_name_of_no_gpu_is_not_asked_for(mgpud: FakeMgpud, words: tuple[str, ...]) -> None:
    mgpud.reply_to("list", listed([]))
    assert mgpu(*words).exit_code == 1
    assert told(mgpud) == []
