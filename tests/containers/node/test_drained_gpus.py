"""GPUs that the operator drains, or that are lost: mgpud lets go of them, and they can be reset."""

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import DEVNULL
from typing import Any

import pytest

from sim import cards
from tests.support import scrape
from tests.support.arbiter import Arbiter, until_empty
from tests.support.bundle import bundle
from tests.support.commands import attempt
from tests.support.programs import Programs
from tests.support.steady import killed
from tests.support.waiting import until

pytestmark = pytest.mark.usefixtures("private_host")


def card_process(mgpu: Arbiter, words: str) -> Any:
    return cards.ask(mgpu.root / "sim" / "admin.sock", words)


def card(mgpu: Arbiter, index: int = 0) -> dict[str, Any]:
    row: dict[str, Any] = mgpu.listing()["cards"][index]
    return row


def registers_mapped(mgpu: Arbiter) -> int:
    """Of how many GPUs mgpud reads what their engines execute."""
    maps = Path(f"/proc/{mgpu.pid_of('mgpud')}/maps").read_text()
    return sum("memfd:mgpu-registers" in line for line in maps.splitlines())


def users(mgpu: Arbiter, minor: int = 0) -> int:
    """The number of users of the GPU, which is reset if there are none."""
    return int(card_process(mgpu, f"reset {minor}")["in_use"])


@contextmanager
def program(mgpu: Arbiter, built: Programs, gpu: str = "0") -> Iterator[str]:
    """A container that holds memory there."""
    env = {"MGPU_MEMORY_MIB": "512", "NVIDIA_VISIBLE_DEVICES": gpu}
    with built.bundle("hold", "64", env=env) as made:
        before = mgpu.used_bytes()
        started = made.argv(mgpu.runtime, "run", "--detach", "--bundle", made.path, made.container)
        # Its children keep its output open.
        subprocess.run(started, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL, check=True, timeout=60)
        until(lambda: sum(mgpu.used_bytes()) > sum(before), "it works")
        yield made.container
        attempt(*made.argv(mgpu.runtime, "kill", made.container, "KILL"))


def seen_in_container(mgpu: Arbiter, gpu: str) -> str:
    env = {"MGPU_MEMORY_MIB": "256", "NVIDIA_VISIBLE_DEVICES": gpu}
    with bundle("gpustat", "--no-header", env=env) as made:
        done = made.run(mgpu.runtime)
        return done.out + done.err


def test_gpu_is_drained_reset_and_taken_back(mgpu: Arbiter, built: Programs) -> None:
    served_by = mgpu.pid_of("mgpud")
    assert registers_mapped(mgpu) == 2
    said: list[str] = []
    with program(mgpu, built, "1"):
        with program(mgpu, built) as container:
            drain = threading.Thread(target=lambda: said.append(mgpu.mgpu("drain", "0")))
            drain.start()
            until(lambda: bool(card(mgpu)["drained"]), "it is drained")
            assert "draining" in mgpu.mgpu("devices")
            assert "is drained, so that it takes no new container; mgpu undrain 0" in seen_in_container(
                mgpu, "0"
            )
            assert "[0]" in seen_in_container(mgpu, "1")
            assert users(mgpu) >= 2, "the container, and mgpud"
            assert registers_mapped(mgpu) == 2
        drain.join()
        assert said == [
            f"waiting: 1 container holds GPU 0: {container[:12]}\nGPU 0: drained; mgpud has nothing of it open\n"
        ]
        assert registers_mapped(mgpu) == 1
        assert (users(mgpu), users(mgpu, 1) > 0) == (0, True)
        assert 'mgpu_card_drained{card="0"' in scrape.text_at(mgpu.root / "metrics.sock")
        assert mgpu.mgpu("undrain", "0") == "GPU 0: takes containers\n"
        assert registers_mapped(mgpu) == 2
        assert "[0]" in seen_in_container(mgpu, "0")
    assert mgpu.pid_of("mgpud") == served_by
    until_empty(mgpu)


def test_next_mgpud_leaves_a_drained_gpu_alone_too(mgpu: Arbiter) -> None:
    mgpu.mgpu("drain", card(mgpu)["uuid"][:12])
    killed(mgpu, "mgpud")
    until(lambda: mgpu.try_mgpu("devices").status == 0 and bool(card(mgpu)["released"]), "it says so")
    assert (registers_mapped(mgpu), users(mgpu)) == (1, 0)
    mgpu.mgpu("undrain", "0")
    assert "[0]" in seen_in_container(mgpu, "0")


def test_driver_is_loaded_anew_while_all_gpus_are_drained(mgpu: Arbiter, built: Programs) -> None:
    with program(mgpu, built):
        pass
    mgpu.mgpu("drain", "--all")
    served_by = mgpu.pid_of("mgpud")
    assert (registers_mapped(mgpu), users(mgpu), users(mgpu, 1)) == (0, 0, 0)
    card_process(mgpu, "reload v100-16,a10")
    assert "is drained" in seen_in_container(mgpu, "0")
    assert mgpu.pid_of("mgpud") == served_by, "what becomes of the driver is not its business"
    mgpu.mgpu("undrain", "--all")
    assert mgpu.pid_of("mgpud") != served_by
    assert "NVIDIA A10" in mgpu.mgpu("devices")
    assert "[0]" in seen_in_container(mgpu, "0")


def test_lost_gpu_is_let_go_of_and_back_after_its_reset(mgpu: Arbiter, built: Programs) -> None:
    with program(mgpu, built):
        card_process(mgpu, "lose 0")
        until(lambda: bool(card(mgpu)["released"]), "mgpud lets go of it")
        assert registers_mapped(mgpu) == 1
    until_empty(mgpu)
    until(lambda: users(mgpu) == 0, "nobody has it")
    until(lambda: not card(mgpu)["lost"], "it is back")
    assert registers_mapped(mgpu) == 2
    assert "[0]" in seen_in_container(mgpu, "0")


def test_name_of_no_gpu_is_not_drained(mgpu: Arbiter) -> None:
    assert 'no GPUs of this node are named "7"' in mgpu.try_mgpu("drain", "7").err
    assert '2 GPUs of this node are named "GPU-"' in mgpu.try_mgpu("drain", "GPU-").err
    assert mgpu.try_mgpu("undrain").status == 2
