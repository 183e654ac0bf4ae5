"""A card that falls off its bus under NVIDIA's driver and mgpu."""

import re
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.claims import decides
from lab.guest import boxes, served
from lab.tests.nv import Client
from lab.tests.under_mgpu import LIMIT_S, until
from tests.gpu import rm
from tests.gpu.product import Container, Product
from tests.support.rm_numbers import NV_ERR_GPU_IS_LOST, NV_ERR_INVALID_DEVICE

# Where lab/card/power.c has a card fall off.
FALL_OFF = 0xF0
GPUS = Path("/proc/driver/nvidia/gpus")


@dataclass(frozen=True)
class Place:
    """A card by its place on the bus, its node and RM's number of it."""

    name: str
    minor: int
    number: int

    def client(self) -> Client:
        return Client(card=self.number, minor=self.minor)

    def inside(self, verb: str) -> Sequence[str]:
        """Words of a container that has this card."""
        return boxes.inside(verb, str(self.number), str(self.minor))


def places() -> list[Place]:
    """By their minors. Their nodes stay open, and so RM's numbers, which are in the order of attaching."""
    for minor in range(2):
        rm.node(f"nvidia{minor}")
    numbers = {gpu_id: number for number, gpu_id in Client(attach=False).gpu_ids().items()}
    found = []
    for folder in GPUS.iterdir():
        [minor] = re.findall(r"Device Minor:\s+(\d+)\n", (folder / "information").read_text())
        domain, bus, device, _ = (int(part, 16) for part in re.split("[:.]", folder.name))
        found.append(Place(folder.name, int(minor), numbers[domain << 16 | bus << 8 | device]))
    return sorted(found, key=lambda place: place.minor)


def fall_off(place: Place) -> None:
    with Path(f"/sys/bus/pci/devices/{place.name}/config").open("r+b", buffering=0) as config:
        config.seek(FALL_OFF)
        config.write(b"\1")


def name_of(client: Client) -> str:
    """As mgpud lists it."""
    return f"GPU-{uuid.UUID(bytes=client.uuid())}"


def lost(product: Product) -> list[str]:
    return [str(card["uuid"]) for card in product.ask("list")["cards"] if card["lost"]]


WELL, INTACT, CUT_OFF = {"memory": 0, "control": 0}, {"intact": True}, {"intact": False}
LOST = {"memory": NV_ERR_INVALID_DEVICE, "control": NV_ERR_GPU_IS_LOST}


def state_of(box: Container) -> dict[str, int]:
    """From now on, not what waits in the pipe."""
    now_s = time.monotonic()
    while (said := boxes.told(box)).pop("at_s") < now_s:
        pass
    return said


@decides(cards=2, long=True, limit_s=LIMIT_S, alone=True)
def lost_card_is_left_and_the_other_goes_on() -> None:
    """Its containers get the driver's errors, nothing new is put on it, and mgpud has nothing of it open."""
    kept, other = places()
    outside = other.client()
    steady_card, lost_card = (name_of(client) for client in (kept.client(), outside))
    product = boxes.product()
    with (
        product.container(kept.inside("ask"), memory_mib=256, cards=steady_card) as steady,
        product.container(other.inside("ask"), memory_mib=256, cards=lost_card) as falling,
        product.container(kept.inside("copy"), memory_mib=256, cards=steady_card) as working,
        product.container(other.inside("copy"), memory_mib=256, cards=lost_card) as cut_off,
    ):
        found = [state_of(box) for box in (steady, falling, working, cut_off)]
        assert found == [WELL, WELL, INTACT, INTACT], found
        assert lost(product) == []
        fall_off(other)
        until(lambda: outside.state() == LOST, "the driver does not say that it is lost")
        until(lambda: state_of(falling) == LOST, "the container is not told what the driver says")
        assert state_of(cut_off) == CUT_OFF
        until(lambda: lost(product) == [lost_card], "mgpud does not say that it is lost")
        until(lambda: "event=card-released" in served.LOG.read_text(), "mgpud has it open")
        assert [state_of(box) for box in (steady, working)] == [WELL, INTACT]
        with product.container(other.inside("ask"), memory_mib=256, cards=lost_card) as refused:
            said = refused.end().out
        print(said)
        assert re.fullmatch("mgpu: .*\n", said), said
        with product.container(kept.inside("ask"), memory_mib=256, cards=steady_card) as another:
            assert state_of(another) == WELL
        found = [state_of(box) for box in (steady, falling, working, cut_off)]
        assert found == [WELL, LOST, INTACT, CUT_OFF], found
    until(lambda: product.ask("list")["containers"] == [], "a container of the lost card does not end")
