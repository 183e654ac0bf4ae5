"""`mgpu web` beside an mgpu on simulated GPUs, and the picture of its page in docs. Root; takes a minute.

python -m tests.support.web
"""

import io
import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from PIL import Image

from tests.support import arbiter, host
from tests.support.arbiter import Arbiter
from tests.support.bundle import bundle
from tests.support.chromium import Chromium, chromium
from tests.support.lending import LENDS
from tests.support.load import Load, bound, load
from tests.support.places import MGPU, REPOSITORY
from tests.support.processes import daemon
from tests.support.waiting import until

PICTURE = REPOSITORY / "docs" / "pictures" / "web.png"
NODES_PICTURE = PICTURE.with_name("web-nodes.png")
COLOURS = 256
SIZE = (1280, 1400)
# Requests of 1.2 s.
SLOW = ("burst", "--kernels", "600", "--kernel-us", "2000", "--seconds", "600")
CONFIG = f"environment_in_pods = true\npolicy = 'native-burst-share'\nhold_ms = 200\n{LENDS}"
SATURATE = ("saturate", "--kernel-us", "2000", "--queue", "4", "--seconds", "600")


TUNED_MIB = 1500
# A pod whose name would be a page's own, where names were not texts.
GREEDY = "batch/<img src=x onerror=alert(1)>"


@contextmanager
def serving(mgpu: Arbiter, *options: str | Path) -> Iterator[str]:
    """Its address, which it says when it serves."""
    log = mgpu.root / "log" / "web.log"
    log.unlink(missing_ok=True)
    argv: list[str | Path] = [MGPU, "web", "--root", mgpu.root, *(options or ("--listen", "127.0.0.1:0"))]
    with daemon(argv, log=log, ready=lambda: "serving" in log.read_text()):
        found = re.search(r"serving (?:on )?([^\s,#]+)", log.read_text())
        assert found
        yield found[1]


def holding(mib: int) -> tuple[str, ...]:
    return ("alloc", "--mib", str(mib), "--hold-ms", "600000")


def pod(name: str) -> dict[str, str]:
    namespace, _, own = name.partition("/")
    return {
        "io.kubernetes.cri.sandbox-namespace": namespace,
        "io.kubernetes.cri.sandbox-name": own,
        "io.kubernetes.cri.container-name": "main",
    }


@contextmanager
def busy(refused: str = GREEDY) -> Iterator[Arbiter]:
    """A node where training is beside services, some memory is lent, some evicted, and some was refused."""
    with arbiter.running("v100-16:2", node_config=CONFIG) as mgpu, ExitStack() as stack:

        def started(name: str, *args: str, lent: bool = False, **options: Any) -> Load:
            annotations = pod(name) | ({"mgpu.dev/memory-reclaimable": "true"} if lent else {})
            one = stack.enter_context(load(mgpu, *args, annotations=annotations, **options))
            bound(one)
            return one

        started("batch/train", *SATURATE, qos="offline", memory_mib=3072)
        started("prod/search", *SLOW, "--period-ms", "5000", memory_mib=6144)
        started("batch/embed", *SATURATE, qos="offline", memory_mib=3072)
        started("prod/chat", *holding(7000), memory_mib=9216)
        started("prod/rank", *SLOW, "--period-ms", "3500", memory_mib=2048)
        started("batch/index", *holding(2600), qos="offline", memory_mib=4096, lent=True)
        away = started("batch/tune", *holding(TUNED_MIB), qos="offline", memory_mib=2048, lent=True)
        until(lambda: away.row()["cards"][0]["used_bytes"] > TUNED_MIB << 20, "it has its memory")
        mgpu.mgpu("evict", away.name)
        with bundle("true", env={"MGPU_MEMORY_MIB": "20000"}, annotations=pod(refused)) as made:
            made.run(mgpu.runtime)
        yield mgpu


def nodes(mgpu: Arbiter) -> tuple[str, ...]:
    """Options that show it as one of two, of which the other one is away."""
    away = "rack1-b=http://127.0.0.1:1/metrics"
    return "--listen", "127.0.0.1:0", "--node", f"rack1-a=unix:{mgpu.root}/metrics.sock", "--node", away


def kept(picture: bytes) -> Image.Image:
    return Image.open(io.BytesIO(picture)).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)


def opened(browser: Chromium, url: str) -> None:
    browser.open(url)
    browser.until("document.querySelectorAll('.gpu').length == 2")


def main() -> None:
    host.become_private()
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    with busy("batch/greedy") as mgpu, serving(mgpu, *nodes(mgpu)) as url, chromium() as browser:
        browser.look(1280, 760)
        opened(browser, url)
        kept(browser.picture()).save(NODES_PICTURE, optimize=True)
        if sys.argv[1:] == ["nodes"]:
            return
    with busy("batch/greedy") as mgpu, serving(mgpu) as url, chromium() as browser:
        browser.look(*SIZE)
        opened(browser, url)
        browser.until("new Promise(done => setTimeout(done, 31000, true))")
        kept(browser.picture()).save(PICTURE, optimize=True)
        if folder is None:
            return
        (folder / "light.png").write_bytes(browser.picture())
        browser.look(1280, 1140, "dark")
        (folder / "dark.png").write_bytes(browser.picture())
        browser.look(390, 2400, "dark", telephone=True)
        (folder / "telephone.png").write_bytes(browser.picture())
        browser.look(1280, 1140)
        browser.ask("[...document.querySelectorAll('.open')].find(e => /tune/.test(e.textContent)).click()")
        browser.until("document.querySelector('#story-log li')")
        (folder / "story.png").write_bytes(browser.picture())
        print(browser.said)


if __name__ == "__main__":
    main()
