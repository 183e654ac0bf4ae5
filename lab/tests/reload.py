"""Another driver in place of the one that is loaded: mgpud lets go of it, and takes it up again."""

from collections.abc import Iterator
from pathlib import Path

from lab.claims import decides
from lab.guest import boxes
from lab.tests.engines import run
from lab.tests.nv import Client
from lab.tests.under_mgpu import LIMIT_S, until
from tests.gpu.product import Product

NODES = "/dev/nvidia"


def fills(product: Product) -> None:
    with product.container(boxes.inside("fill", "64"), memory_mib=512) as box:
        assert boxes.told(box)["held_mib"] == 512


def open_files() -> Iterator[str]:
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            name = link.readlink()
        except OSError:
            continue
        if str(name).startswith(NODES):
            yield f"{(link.parents[1] / 'comm').read_text().strip()}: {name}"


@decides(long=True, limit_s=LIMIT_S, alone=True)
def drained_driver_is_loaded_anew() -> None:
    """As docs/surviving.md has it, but for the other version. NVIDIA's NVML attaches the cards that it
    counts; here somebody has to.
    """
    outside = Client()
    product = boxes.product()
    fills(product)
    until(lambda: product.ask("list")["containers"] == [], "its container goes on")
    run("mgpu", "drain", "--all")
    outside.close()
    left = list(open_files())
    run("rmmod", "nvidia_uvm", "nvidia")
    assert not left, left
    run("/lab/lab/guest/driver.sh")
    outside = Client()
    run("mgpu", "undrain", "--all")
    fills(product)
    outside.close()
