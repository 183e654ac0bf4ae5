"""Draw how much of a cluster is allocated as requests arrive: an SVG from what the judge of the traces wrote.

    python -m tests.bench.curves docs/pictures/allocation.svg mgpu=ours.json FGD=fgd.json …

Each file is a judge's --json; of several runs in one file the mean is drawn. A file may be named more than
once, under one name, for runs that were made apart.
"""

import json
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

# Percent of all GPUs: of what has arrived, and of what is allocated. Before the first all policies are one
# line.
X_FROM, X_TO, X_STEP = 80, 130, 10
Y_FROM, Y_TO, Y_STEP = 78, 98, 2
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 400, 56, 150, 20, 48
COLOURS = ("#1b6ca8", "#c0392b", "#7d3c98", "#7f8c8d")
# Pixels between the names at the right, at least.
APART = 16

Curve = Mapping[int, float]


def curves(arguments: Iterable[str]) -> dict[str, Curve]:
    """The mean curve of each name."""
    values: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for argument in arguments:
        name, _, path = argument.partition("=")
        for run in json.loads(Path(path).read_text()):
            for arrived, allocated in run["curve"].items():
                values[name][int(arrived)].append(allocated)
    return {
        name: {arrived: statistics.mean(found) for arrived, found in sorted(points.items())}
        for name, points in values.items()
    }


def x(arrived: float) -> float:
    return LEFT + (arrived - X_FROM) / (X_TO - X_FROM) * (WIDTH - LEFT - RIGHT)


def y(allocated: float) -> float:
    return HEIGHT - BOTTOM - (allocated - Y_FROM) / (Y_TO - Y_FROM) * (HEIGHT - TOP - BOTTOM)


def text(at_x: float, at_y: float, words: str, *, anchor: str = "middle", fill: str = "#333") -> str:
    return f'<text x="{at_x:.1f}" y="{at_y:.1f}" text-anchor="{anchor}" fill="{fill}">{words}</text>'


def line(from_x: float, from_y: float, to_x: float, to_y: float, stroke: str) -> str:
    return f'<line x1="{from_x:.1f}" y1="{from_y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}" stroke="{stroke}"/>'


def axes() -> list[str]:
    found = []
    for percent in range(Y_FROM, Y_TO + 1, Y_STEP):
        found.append(line(LEFT, y(percent), WIDTH - RIGHT, y(percent), "#e5e5e5"))
        found.append(text(LEFT - 8, y(percent) + 4, f"{percent} %", anchor="end"))
    for percent in range(X_FROM, X_TO + 1, X_STEP):
        found.append(line(x(percent), HEIGHT - BOTTOM, x(percent), HEIGHT - BOTTOM + 5, "#333"))
        found.append(text(x(percent), HEIGHT - BOTTOM + 18, f"{percent} %"))
    found.append(line(x(100), y(Y_FROM), x(100), y(Y_TO), "#bbb"))
    found.append(text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, "GPUs asked for, of all GPUs"))
    found.append(text(LEFT, TOP - 6, "GPUs allocated, of all GPUs", anchor="start"))
    return found


def drawn(found: Mapping[str, Curve]) -> str:
    """The picture; names stand at their curves' ends, the highest first, apart enough to be read."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
        f'viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
        *axes(),
    ]
    colours = dict(zip(found, COLOURS, strict=False))
    below = 0.0
    for name, curve in sorted(found.items(), key=lambda each: -each[1][X_TO]):
        points = " ".join(
            f"{x(arrived):.1f},{y(allocated):.1f}"
            for arrived, allocated in curve.items()
            if X_FROM <= arrived <= X_TO and allocated >= Y_FROM
        )
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{colours[name]}" stroke-width="1.8"/>'
        )
        below = max(y(curve[X_TO]) + 4, below + APART)
        parts.append(
            text(
                WIDTH - RIGHT + 8,
                below,
                f"{name}: {curve[100]:.2f} %",
                anchor="start",
                fill=colours[name],
            )
        )
    return "\n".join([*parts, "</svg>", ""])


def main() -> None:
    Path(sys.argv[1]).write_text(drawn(curves(sys.argv[2:])))


if __name__ == "__main__":
    main()
