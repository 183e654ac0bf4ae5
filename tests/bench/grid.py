"""How much of a cluster the extender's decisions allocate on many mixes of requests, beside plain policies.

The mixes are made out of a production list of requests, and played against every fourth node of its cluster
by the judge of traces.py, whose folder has the program that makes them too. Without it there are no rows.
MGPU_GRID_ORDERS: how many orders of arrival, three unless given. A result is kept in build/grid, so that the
plain policies, which nothing here changes, are played once.
"""

import hashlib
import importlib.util
import json
import os
import random
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from tests.bench.curves import line, text
from tests.bench.rows import Row
from tests.bench.traces import FOLDER, OURS, PLAIN
from tests.bench.traces_policy import Policy
from tests.support.commands import run

ORDERS = int(os.environ.get("MGPU_GRID_ORDERS", "3"))
FIRST_ORDER = 42
KEPT = Path("build/grid")
PICTURE = Path("build/mixes.svg")
EVERY = 4
AT = (100, 130)
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 320, 56, 16, 24, 40
COLOURS = ("#1b6ca8", "#c0392b")

Decide = Callable[[dict[str, Any]], tuple[str | None, list[int]]]
# Percent of all GPUs allocated when requests for 100 and for 130 percent have come.
Allocated = tuple[float, float]


class Point(NamedTuple):
    """Parts of the GPUs asked for by requests of several and of one whole GPU, the part of requests that
    name a model, a factor on their CPU, the part of pods without a GPU; size: GPUs of what were nodes of 8.
    """

    several: float
    whole: float
    models: float
    cpu: float
    other: float
    size: int


_SEVERAL_WHOLE = (
    *((0, 0), (0, 0.3), (0, 0.6), (0.1, 0.1), (0.1, 0.4)),
    *((0.25, 0.2), (0.25, 0.4), (0.25, 0.6), (0.5, 0), (0.5, 0.2)),
    *((0.5, 0.4), (0.7, 0), (0.7, 0.2), (0.9, 0), (0.9, 0.1)),
)
_SIZES = (8, 8, 8, 8, 4, 8, 8, 16)


def points() -> list[Point]:
    """45 of them: each part of several and whole GPUs three times, with others drawn at random, the same ones
    each time.
    """
    drawn = random.Random(7)
    return [
        Point(
            several,
            whole,
            drawn.choice((0, 0.1, 0.3, 0.5)),
            drawn.choice((0.5, 1, 1, 1.5, 2)),
            drawn.choice((0, 0.13, 0.3, 0.5)),
            _SIZES[number % len(_SIZES)],
        )
        for number, (several, whole) in enumerate(3 * _SEVERAL_WHOLE)
    ]


@cache
def judge() -> ModuleType:
    spec = importlib.util.spec_from_file_location("evaluate", FOLDER / "evaluate.py")
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    # The judge's folder may be read-only.
    sys.dont_write_bytecode = True
    spec.loader.exec_module(found)
    return found


def nodes(size: int) -> list[dict[str, Any]]:
    """Every fourth node; those of 8 GPUs as two of 4, or with twice of all they have."""
    found = []
    for node in judge().load_nodes(FOLDER / "openb_node_list_gpu_node.csv")[::EVERY]:
        if node["num_gpu"] != 8 or size == 8:
            found.append(node)
            continue
        sized = {key: node[key] * size // 8 for key in ("num_gpu", "cpu_milli", "memory_mib")}
        names = [f"{node['name']}{part}" for part in ("ab" if size == 4 else "a")]
        found += [{**node, **sized, "name": name} for name in names]
    return found


def requests(point: Point) -> list[dict[str, Any]]:
    options = {"several": point.several, "whole": point.whole, "models": point.models, "cpu": point.cpu}
    file = KEPT / f"{_name(point)}.csv"
    if not file.exists():
        said = [str(word) for key, value in options.items() for word in (f"--{key}", value)]
        program = [sys.executable, str(FOLDER / "mixes.py"), *said, "--cpu-pods", str(point.other)]
        made = run(*program, timeout_s=600)
        KEPT.mkdir(parents=True, exist_ok=True)
        file.write_text(made)
    found: list[dict[str, Any]] = judge().load_pods(file)
    return found


def play(
    found: Sequence[dict[str, Any]], there: Sequence[dict[str, Any]], order: int, policy: str
) -> Allocated:
    sequence, ordered = judge().workload(found, there, AT[1] / 100, order)
    return play_in_order(sequence, ordered, policy, judge().pod_mix(found))


def play_in_order(
    sequence: Sequence[dict[str, Any]],
    ordered: list[dict[str, Any]],
    policy: str,
    mix: Sequence[dict[str, Any]] = (),
) -> Allocated:
    """The judge's ledger raises where a policy breaks a rule. mix: what FGD is told."""
    ledger = judge().Ledger(ordered)
    decide = _policy(policy, ordered, mix)
    all_gpus = 1000 * sum(node["num_gpu"] for node in ordered)
    arrived = 0
    # A pod of several GPUs may step over a percent.
    curve = {at: [0.0] for at in AT}
    for pod in sequence:
        node, gpus = decide(pod)
        arrived += pod["num_gpu"] * pod["gpu_milli"]
        if node is not None:
            ledger.place(pod, node, gpus)
        elif ledger.feasible(pod):
            raise RuntimeError(f"{policy}: {pod['id']} is refused although a node could take it")
        at = min(AT[1], round(100 * arrived / all_gpus))
        if at in curve:
            curve[at].append(100 * ledger.used / all_gpus)
    curve[AT[1]].append(100 * ledger.used / all_gpus)
    at_100, at_130 = (statistics.mean(curve[at][1:] or [0.0]) for at in AT)
    return at_100, at_130


def _policy(name: str, there: list[dict[str, Any]], mix: Sequence[dict[str, Any]]) -> Decide:
    if name not in (OURS, "binpack"):
        decide: Decide = judge().BUILTIN[name](there, mix, 0).decide
        return decide
    ours = Policy(there, "binpack" if name == "binpack" else "fgd")

    def placed(asked: dict[str, Any]) -> tuple[str | None, list[int]]:
        answer = ours.place(asked)
        return answer["node"], answer["gpus"]

    return placed


def allocated(point: Point, policy: str, orders: int = ORDERS) -> Allocated:
    """The mean of the orders of arrival."""
    found = [_played(point, FIRST_ORDER + number, policy) for number in range(orders)]
    return statistics.mean(each[0] for each in found), statistics.mean(each[1] for each in found)


def _played(point: Point, order: int, policy: str) -> Allocated:
    file = KEPT / f"{_name(point)}-{order}-{policy}.json"
    if policy == OURS or not file.exists():
        done = play(requests(point), nodes(point.size), order, policy)
        file.write_text(json.dumps(done))
    at_100, at_130 = json.loads(file.read_text())
    return at_100, at_130


def _name(point: Point) -> str:
    return hashlib.sha256(repr(point).encode()).hexdigest()[:12]


def gains(found: Mapping[Point, Mapping[str, Allocated]]) -> list[Allocated]:
    """Of each point, what ours has above the best of the plain policies, in points."""
    return [
        (
            policies[OURS][0] - max(policies[name][0] for name in PLAIN),
            policies[OURS][1] - max(policies[name][1] for name in PLAIN),
        )
        for policies in found.values()
    ]


def measure() -> list[Row]:
    if not (FOLDER / "mixes.py").exists():
        return []
    found = {point: {policy: allocated(point, policy) for policy in (*PLAIN, OURS)} for point in points()}
    above = gains(found)
    PICTURE.write_text(drawn(above))
    rows = []
    for place, at in enumerate(AT):
        each = [gain[place] for gain in above]
        words = f"{len(above)} mixes, {at} % asked for: mgpu above the best of FGD, first fit, best fit"
        mean = statistics.mean(each)
        rows += [
            Row(name=f"{words}, mean", value=mean, unit="points", target=0.7, better="higher"),
            Row(name="the same, least", value=min(each), unit="points", target=-0.2, better="higher"),
            Row(
                name="the same, mixes below -0.2", value=sum(gain < -0.2 for gain in each), unit="", target=0
            ),
        ]
    return rows


def drawn(above: Sequence[Allocated]) -> str:
    """The picture: a bar a mix, by what mgpu has above the best of the others, least first."""
    low, high = -3.0, max(6.0, *(max(gain) for gain in above))

    def y(points_above: float) -> float:
        return TOP + (high - points_above) / (high - low) * (HEIGHT - TOP - BOTTOM)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
        f'viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
    ]
    for step in range(int(low), int(high) + 1):
        stroke = "#333" if step == 0 else "#e5e5e5"
        parts.append(line(LEFT, y(step), WIDTH - RIGHT, y(step), stroke))
        parts.append(text(LEFT - 8, y(step) + 4, f"{step:+d}" if step else "0", anchor="end"))
    each = (WIDTH - LEFT - RIGHT) / len(above)
    for place, at in enumerate(AT):
        for number, gain in enumerate(sorted(gain[place] for gain in above)):
            left = LEFT + each * (number + 0.1 + 0.4 * place)
            top, bottom = sorted((y(max(low, gain)), y(0)))
            parts.append(
                f'<rect x="{left:.1f}" y="{top:.1f}" width="{0.4 * each:.1f}" '
                f'height="{max(0.5, bottom - top):.1f}" fill="{COLOURS[place]}"/>'
            )
        parts.append(
            text(
                LEFT + 8,
                TOP + 16 * (place + 1),
                f"{at} % of all GPUs asked for",
                anchor="start",
                fill=COLOURS[place],
            )
        )
    parts.append(text(LEFT, TOP - 8, "percent of all GPUs, above the best of the others", anchor="start"))
    parts.append(text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, f"{len(above)} mixes, each by itself sorted"))
    return "\n".join([*parts, "</svg>", ""])


if __name__ == "__main__":
    from tests.bench import rows

    rows.show(measure())
