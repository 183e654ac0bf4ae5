"""Draws docs/pictures/dashboard.png: containers on two simulated cards, a Prometheus that scrapes mgpud once
a second, and its answers to the dashboard's own expressions in the dashboard's own layout. Root; takes a
minute.

    python -m tests.support.dashboard_picture
"""

import json
import math
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image, ImageDraw, ImageFont

from tests.support import arbiter, dashboard, host
from tests.support.arbiter import Arbiter
from tests.support.bundle import bundle
from tests.support.load import Load, bound, load
from tests.support.places import REPOSITORY
from tests.support.processes import daemon

PICTURE = REPOSITORY / "docs" / "pictures" / "dashboard.png"
METRICS, PROMETHEUS = "127.0.0.1:19401", "127.0.0.1:19090"
# Four scrapes, as Grafana has it.
RATE_INTERVAL = "4s"
WIDTH, ROW, GAP, MARGIN = 1600, 31, 8, 16
PAPER, CARD, INK, FAINT, GRID = (244, 245, 246), (255, 255, 255), (34, 34, 34), (96, 96, 96), (228, 228, 228)
# Okabe and Ito's palette.
LINES = (
    (0, 114, 178),
    (230, 159, 0),
    (0, 158, 115),
    (204, 121, 167),
    (86, 180, 233),
    (213, 94, 0),
    (120, 120, 120),
    (0, 0, 0),
)
SATURATE = ("saturate", "--kernel-us", "2000", "--queue", "4", "--seconds", "300")


class Series(NamedTuple):
    name: str
    points: list[tuple[float, float]]


def _pod(namespace: str, pod: str) -> dict[str, str]:
    return {
        "io.kubernetes.cri.sandbox-namespace": namespace,
        "io.kubernetes.cri.sandbox-name": pod,
        "io.kubernetes.cri.container-name": "main",
    }


@contextmanager
def prometheus(home: Path) -> Iterator[None]:
    config = {
        "global": {"scrape_interval": "1s"},
        "scrape_configs": [
            {
                "job_name": "mgpu",
                "static_configs": [{"targets": [METRICS], "labels": {"instance": "node-1"}}],
            }
        ],
    }
    path = home / "prometheus.yml"
    path.write_text(json.dumps(config))
    argv: list[str | Path] = [
        "prometheus",
        f"--config.file={path}",
        f"--storage.tsdb.path={home / 'data'}",
        f"--web.listen-address={PROMETHEUS}",
    ]
    with daemon(argv, log=home / "prometheus.log", ready=_ready):
        yield


def _ready() -> bool:
    with suppress(OSError), urllib.request.urlopen(f"http://{PROMETHEUS}/-/ready", timeout=1) as answer:
        return bool(answer.status == 200)
    return False


def query(expression: str, legend: str, start_s: float, end_s: float) -> list[Series]:
    """What Prometheus has for an expression, each series under the name that the legend gives it."""
    asked = {"query": expression, "start": start_s, "end": end_s, "step": 1}
    url = f"http://{PROMETHEUS}/api/v1/query_range?{urllib.parse.urlencode(asked)}"
    with urllib.request.urlopen(url, timeout=10) as answer:
        found = json.load(answer)["data"]["result"]
    return [
        Series(_legend(legend, row["metric"]), [(at, float(number)) for at, number in row["values"]])
        for row in found
    ]


def _legend(legend: str, labels: dict[str, str]) -> str:
    for name, text in labels.items():
        legend = legend.replace("{{" + name + "}}", text)
    return " ".join(legend.split())


def scenario(mgpu: Arbiter, stack: ExitStack) -> None:
    """Training beside a service that comes and goes, and what is refused."""

    def started(namespace: str, pod: str, *args: str, **options: Any) -> Load:
        one = stack.enter_context(load(mgpu, *args, annotations=_pod(namespace, pod), **options))
        bound(one)
        return one

    started("batch", "train-a", *SATURATE, qos="offline", memory_mib=4096)
    time.sleep(8)
    burst = ("burst", "--period-ms", "200", "--kernels", "40", "--kernel-us", "1500", "--seconds", "300")
    service = started("prod", "search", *burst, qos="online", memory_mib=6144)
    time.sleep(8)
    started("batch", "train-b", *SATURATE, qos="offline", memory_mib=4096)
    started("prod", "cache", "alloc", "--mib", "5000", "--hold-ms", "300000", qos="online", memory_mib=8192)
    time.sleep(8)
    for _ in range(3):
        with load(
            mgpu, "alloc", "--mib", "3000", annotations=_pod("batch", "greedy"), memory_mib=1024
        ) as one:
            one.running.process.wait(20)
        with bundle("true", env={"MGPU_MEMORY_MIB": "20000"}) as made:
            made.run(mgpu.runtime)
    time.sleep(6)
    service.stop()
    time.sleep(12)


def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)


def shown(number: float, unit: str) -> str:
    """As Grafana writes it, near enough."""
    if unit == "percentunit":
        return f"{100 * number:.3g}%"
    if unit == "bytes":
        return f"{number / 2**30:.3g} GiB"
    if unit == "s":
        # Pillow's own font has no Greek.
        return f"{1e6 * number:.3g} us" if number < 1e-3 else f"{1e3 * number:.3g} ms"
    text = f"{number / 1e3:.3g} k" if number >= 1e3 else f"{number:.3g}"
    return text + ("/s" if unit == "ops" else "")


def step(highest: float, unit: str) -> float:
    """Between two grid lines: a round number of which at most five reach `highest`."""
    scale = 2**30 if unit == "bytes" else 1
    size = scale * 10.0 ** math.floor(math.log10(highest / scale / 5))
    return next(size * factor for factor in (1, 2, 2.5, 5, 10) if 5 * size * factor >= highest)


def draw(board: dict[str, Any], found: dict[int, list[Series]], start_s: float, end_s: float) -> Image.Image:
    rows = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in board["panels"])
    image = Image.new("RGB", (WIDTH, 2 * MARGIN + rows * ROW), PAPER)
    pen = ImageDraw.Draw(image)
    column = (WIDTH - 2 * MARGIN) / 24
    for panel in board["panels"]:
        place = panel["gridPos"]
        left, top = int(MARGIN + place["x"] * column), MARGIN + place["y"] * ROW
        right, bottom = int(left + place["w"] * column) - GAP, top + place["h"] * ROW - GAP
        pen.rectangle((left, top, right, bottom), CARD)
        pen.text((left + 10, top + 7), panel["title"], INK, _font(16))
        defaults = panel["fieldConfig"]["defaults"]
        box = (left, top + 30, right, bottom)
        if panel["type"] == "stat":
            _stat(pen, box, found[panel["id"]], defaults["unit"])
        else:
            _graph(pen, box, found[panel["id"]], defaults, (start_s, end_s))
    return image


def _stat(pen: ImageDraw.ImageDraw, box: tuple[int, int, int, int], found: list[Series], unit: str) -> None:
    left, top, right, bottom = box
    # The latest that is a number: where nothing was preempted lately a quantile is none.
    numbers = [number for series in found for _, number in series.points if number == number]
    text = shown(numbers[-1], unit) if numbers else "no data"
    pen.text(((left + right) / 2, (top + bottom) / 2), text, LINES[2], _font(34), anchor="mm")


def _graph(
    pen: ImageDraw.ImageDraw,
    box: tuple[int, int, int, int],
    found: Sequence[Series],
    defaults: dict[str, Any],
    window: tuple[float, float],
) -> None:
    left, top, right, bottom = box[0] + 84, box[1] + 8, box[2] - 14, box[3] - 62
    highest = max((number for one in found for _, number in one.points if number == number), default=1) or 1
    grid = step(max(highest, defaults.get("max", 0)), defaults["unit"])
    lines = math.ceil(max(highest, defaults.get("max", 0)) / grid - 1e-9)
    highest = grid * lines
    for i in range(lines + 1):
        y = bottom - (bottom - top) * i / lines
        pen.line((left, y, right, y), GRID)
        pen.text((left - 8, y), shown(grid * i, defaults["unit"]), FAINT, _font(13), anchor="rm")
    for i in range(7):
        x = left + (right - left) * i / 6
        seconds = (window[1] - window[0]) * i / 6
        pen.text((x, bottom + 6), f"{seconds:.0f} s", FAINT, _font(13), anchor="ma")
    for number, one in enumerate(found):
        colour = LINES[number % len(LINES)]
        points = [
            (
                left + (right - left) * (at - window[0]) / (window[1] - window[0]),
                bottom - (bottom - top) * value / highest,
            )
            for at, value in one.points
            if value == value
        ]
        if len(points) > 1:
            pen.line(points, colour, 2, joint="curve")
        elif points:
            pen.ellipse((points[0][0] - 2, points[0][1] - 2, points[0][0] + 2, points[0][1] + 2), colour)
    _legends(pen, left - 70, bottom + 26, right, found)


def _legends(pen: ImageDraw.ImageDraw, left: int, top: int, right: int, found: Sequence[Series]) -> None:
    x, y = left, top
    for number, one in enumerate(found):
        width = 24 + int(pen.textlength(one.name, _font(13))) + 14
        if x > left and x + width > right:
            x, y = left, y + 17
        if y > top + 17:
            return
        pen.line((x, y + 8, x + 16, y + 8), LINES[number % len(LINES)], 3)
        pen.text((x + 22, y), one.name, INK, _font(13))
        x += width


def main() -> None:
    host.become_private()
    board = dashboard.load()
    config = f"hold_ms = 40\npolicy = 'native-burst-share'\nmetrics_listen = '{METRICS}'\n"
    with host.home("prometheus") as home, arbiter.running("v100-16:2", node_config=config) as mgpu:
        with prometheus(home), ExitStack() as stack:
            time.sleep(6)
            start_s = time.time() - 1
            scenario(mgpu, stack)
            end_s = time.time()
            found = {
                panel["id"]: [
                    series
                    for target in panel["targets"]
                    for series in query(
                        dashboard.filled(target["expr"], RATE_INTERVAL),
                        target["legendFormat"],
                        start_s,
                        end_s,
                    )
                ]
                for panel in board["panels"]
            }
    draw(board, found, start_s, end_s).save(PICTURE, optimize=True)


if __name__ == "__main__":
    main()
