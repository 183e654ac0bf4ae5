"""Cards are added and lost, and the driver is loaded anew, while containers and mgpu run."""

import subprocess
from contextlib import suppress
from subprocess import DEVNULL
from typing import Any

import pytest

from oci_specs.refusal import Refusal
from sim import cards
from tests.support import scrape
from tests.support.arbiter import Arbiter
from tests.support.bundle import bundle
from tests.support.commands import attempt
from tests.support.waiting import until

pytestmark = pytest.mark.usefixtures("private_host")


def card_process(mgpu: Arbiter, word: str) -> Any:
    return cards.ask(mgpu.root / "sim" / "admin.sock", word)


def log_of(mgpu: Arbiter) -> str:
    return (mgpu.root / "log" / "mgpud.log").read_text()


def inventory(mgpu: Arbiter) -> list[tuple[str, bool]]:
    """Model and health of each card; nothing while no mgpud serves."""
    with suppress(Refusal):
        return [(card["model"], card["healthy"]) for card in mgpu.ask("inventory")["cards"]]
    return []


def seen_in_container(mgpu: Arbiter, card: str) -> str:
    """The card as a container that asks for it sees it, or the refusal."""
    env = {"MGPU_MEMORY_MIB": "256", "NVIDIA_VISIBLE_DEVICES": card}
    with bundle("gpustat", "--no-header", env=env) as made:
        done = made.run(mgpu.runtime)
        return done.out + done.err


V100, A10 = "Tesla V100-SXM2-16GB", "NVIDIA A10"


def test_added_card_is_used_without_a_restart(mgpu: Arbiter) -> None:
    served_by = mgpu.pid_of("mgpud")
    until(lambda: "event=uevent action=listening" in log_of(mgpu), "it listens")
    card_process(mgpu, "add a10")
    until(lambda: inventory(mgpu) == [(V100, True), (V100, True), (A10, True)], "mgpud has the GPU")
    assert A10 in mgpu.mgpu("devices")
    assert 'mgpu_card_info{card="2"' in scrape.text_at(mgpu.root / "metrics.sock")
    assert A10 in seen_in_container(mgpu, "2")
    assert mgpu.pid_of("mgpud") == served_by
    assert "event=uevent action=bind path=/devices/pci0000:00/0000:00:0b.0" in log_of(mgpu)


def test_driver_loaded_anew_is_followed(mgpu: Arbiter) -> None:
    """Cards that were lost are back, those that are there no more are gone, and containers start."""
    card_process(mgpu, "lose 0")
    until(lambda: inventory(mgpu) == [(V100, False), (V100, True)], "mgpud sees the loss")
    assert 'has no GPU "0"' in seen_in_container(mgpu, "0")
    with bundle("sleep", "999", env={"MGPU_MEMORY_MIB": "256"}) as running:
        started = running.argv(mgpu.runtime, "run", "--detach", "--bundle", running.path, running.container)
        # Its children keep its output open.
        subprocess.run(started, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL, check=True, timeout=60)
        card_process(mgpu, "reload v100-16,a10")
        until(lambda: inventory(mgpu) == [(V100, True), (A10, True)], "mgpud serves the driver's GPUs")
        # The second card's number is that of the container's card as long as that runs.
        [(number, uuid)] = [
            (card["index"], card["uuid"]) for card in mgpu.ask("inventory")["cards"] if card["model"] == A10
        ]
        assert number == 2
        assert A10 in seen_in_container(mgpu, uuid)
        assert attempt(*running.argv(mgpu.runtime, "kill", running.container, "KILL")).status == 0
    until(lambda: mgpu.containers() == [], "nothing is left of them")
    assert "event=driver-loaded-anew" in log_of(mgpu)
