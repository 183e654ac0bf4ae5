"""Where the size of a channel group is known from: node.toml, the previous mgpud, the card, or nowhere."""

import errno
from dataclasses import dataclass, field

import pytest

from native_sched.daemon.node import contexts
from native_sched.daemon.node.config import NodeConfig
from native_sched.daemon.node.inventory import CardInfo

MIB = 1 << 20


@dataclass
class Driver:
    graphics: int = 70 * MIB
    asked: list[tuple[int, bool]] = field(default_factory=list)

    def context_bytes(self, minor: int, *, copies: bool) -> int:
        self.asked.append((minor, copies))
        if self.graphics < 0:
            raise OSError(errno.EIO, "Input/output error")
        return MIB if copies else self.graphics


def card(index: int = 0, instance: tuple[int, int] | None = None) -> CardInfo:
    return CardInfo(
        index=index,
        minor=index,
        uuid=f"GPU-{index}",
        name="x",
        memory_mib=1024,
        gpu_id=index,
        instance=instance,
    )


def of(driver: Driver, *cards: CardInfo, config: NodeConfig | None = None, **known: list[int]) -> object:
    found, note = contexts.of_cards(
        driver,
        cards,
        config or NodeConfig(),
        {name.replace("_", "-"): value for name, value in known.items()},
    )
    return [(one.context_bytes // MIB, one.copy_context_bytes // MIB) for one in found], note


def test_context_is_measured_and_written_down() -> None:
    driver = Driver()
    assert of(driver, card(0), card(1)) == (
        [(70, 1), (70, 1)],
        {"GPU-0": [70 * MIB, MIB], "GPU-1": [70 * MIB, MIB]},
    )
    assert driver.asked == [(0, False), (0, True), (1, False), (1, True)]


def test_measurement_of_a_previous_mgpud_is_used() -> None:
    driver = Driver()
    assert of(driver, card(0), GPU_0=[80 * MIB, 3 * MIB]) == ([(80, 3)], {"GPU-0": [80 * MIB, 3 * MIB]})
    assert driver.asked == []


def test_context_size_of_node_toml_comes_first() -> None:
    driver = Driver()
    config = NodeConfig(context_mib=90, copy_context_mib=4)
    assert of(driver, card(0), config=config, GPU_0=[80 * MIB, 3 * MIB]) == ([(90, 4)], {})
    assert driver.asked == []


@pytest.mark.parametrize("graphics", [-1, 0, 4096 * MIB])
def test_unmeasured_context_is_charged_a_default(graphics: int, capfd: pytest.CaptureFixture[str]) -> None:
    assert of(Driver(graphics), card(0)) == ([(128, 2)], {})
    assert "event=context-not-measured card=0" in capfd.readouterr().err


def test_instance_is_not_measured(capfd: pytest.CaptureFixture[str]) -> None:
    driver = Driver()
    assert of(driver, card(0, (1, 0))) == ([(128, 2)], {})
    assert driver.asked == []
    assert "event=context-not-measured card=0" in capfd.readouterr().err
