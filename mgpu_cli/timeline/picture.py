"""A timeline as a picture: a panel for each card, a lane for each container, time from left to right.

Imports Pillow, so only what draws imports this.
"""

from collections.abc import Iterable, Iterator
from functools import cache
from itertools import groupby
from typing import NamedTuple, TypeVar

from PIL import Image, ImageDraw, ImageFont

from mgpu_cli.timeline.rows import Kind, Lane, Timeline
from oci_specs.refusal import printable

_T = TypeVar("_T")
Colour = tuple[int, int, int]

WIDTH = 1600
_MARGIN, _LANE, _GAP, _HEADING, _LEGEND = 28, 34, 10, 46, 24
_AXIS = 52
_LABEL_MAX = 330
_TITLE, _FONT, _SMALL = 22, 19, 16

_PAPER: Colour = (255, 255, 255)
_INK: Colour = (34, 34, 34)
_FAINT: Colour = (84, 84, 84)
_GRID: Colour = (226, 226, 226)
_LANE_PAPER: Colour = (246, 246, 246)
# Okabe and Ito's palette, told apart by every kind of colour vision; hatching tells suspended from running as
# well.
_RUN: dict[str, Colour] = {"online": (0, 114, 178), "offline": (230, 159, 0), "unknown": (120, 120, 120)}
_PALE: dict[str, Colour] = {
    "online": (198, 222, 238),
    "offline": (252, 233, 194),
    "unknown": (222, 222, 222),
}
_HOLD: Colour = (224, 205, 218)
_DRAIN: Colour = (213, 94, 0)
_WORK: Colour = (0, 0, 0)


class _Scale(NamedTuple):
    """From time to pixels: the window lies between `left` and `right`."""

    left: int
    right: int
    start_ns: int
    end_ns: int

    def x(self, at_ns: int) -> float:
        span = max(1, self.end_ns - self.start_ns)
        return self.left + (at_ns - self.start_ns) * (self.right - self.left) / span


def draw(timeline: Timeline, title: str = "") -> Image.Image:
    """The picture; WIDTH pixels wide and as high as its lanes need."""
    panels: dict[str, list[Lane]] = {}
    for lane in timeline.lanes:
        panels.setdefault(lane.panel, []).append(lane)
    height = _MARGIN * 2 + (_HEADING if title else 0) + _LEGEND + _AXIS
    height += sum(_HEADING + len(lanes) * (_LANE + _GAP) for lanes in panels.values())
    image = Image.new("RGB", (WIDTH, height), _PAPER)
    pen = ImageDraw.Draw(image)
    widest = max((pen.textlength(_shown(lane), _font(_SMALL)) for lane in timeline.lanes), default=0)
    left = _MARGIN + min(_LABEL_MAX, int(widest)) + 18
    scale = _Scale(left, WIDTH - _MARGIN, timeline.start_ns, timeline.end_ns)
    y = _MARGIN
    if title:
        pen.text((_MARGIN, y), printable(title), _INK, _font(_TITLE))
        y += _HEADING
    top = y + _HEADING
    # The grid lies below everything, so it is drawn first.
    _grid(pen, scale, top, height - _MARGIN - _LEGEND - _AXIS)
    for panel, lanes in panels.items():
        pen.text((_MARGIN, y + 14), printable(panel), _INK, _font(_FONT))
        y += _HEADING
        for lane in lanes:
            label = _fitted(pen, _shown(lane), left - _MARGIN - 12)
            pen.text((_MARGIN, y + 8), label, _FAINT, _font(_SMALL))
            _lane(pen, scale, lane, timeline, y)
            y += _LANE + _GAP
    _axis(pen, scale, y)
    _legend(pen, timeline, y + _AXIS)
    return image


@cache
def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)


def _shown(lane: Lane) -> str:
    return printable(lane.label)


def _fitted(pen: ImageDraw.ImageDraw, text: str, width: float) -> str:
    while text and pen.textlength(text, _font(_SMALL)) > width:
        text = text[:-2] + "…" if text.endswith("…") else text[:-1] + "…"
    return text


def _lane(pen: ImageDraw.ImageDraw, scale: _Scale, lane: Lane, timeline: Timeline, y: int) -> None:
    bottom = y + _LANE - 1
    pen.rectangle((scale.left, y, scale.right, bottom), _LANE_PAPER)
    cover = _coverage(scale, lane, timeline)
    for start, end, colour in _runs([_mixed(lane, *each) for each in cover]):
        pen.rectangle((scale.left + start, y, scale.left + end - 1, bottom), colour)
    for start, end, hatched in _runs([each[1] > 0.5 for each in cover]):
        if hatched:
            _hatch(pen, scale.left + start, scale.left + end, y, bottom, _RUN[lane.qos])
    for mark in timeline.marks:
        if mark.lane == lane and mark.kind == "work":
            x = round(scale.x(mark.at_ns))
            pen.polygon([(x - 4, y - 6), (x + 4, y - 6), (x, y + 2)], _WORK)


_KINDS: tuple[Kind, ...] = ("run", "suspended", "hold", "drain")


def _coverage(scale: _Scale, lane: Lane, timeline: Timeline) -> list[list[float]]:
    """The part of each pixel column that each kind takes, 0 to 1; short stretches show as a mixture."""
    width = scale.right - scale.left
    cover = [[0.0] * len(_KINDS) for _ in range(width)]
    for row in timeline.rows:
        if row.lane != lane:
            continue
        kind = _KINDS.index(row.kind)
        start, end = scale.x(row.start_ns) - scale.left, scale.x(row.end_ns) - scale.left
        for column in range(max(0, int(start)), min(width, int(end) + 1)):
            cover[column][kind] += max(0.0, min(end, column + 1) - max(start, column))
    return cover


def _mixed(lane: Lane, run: float, suspended: float, hold: float, drain: float) -> Colour:
    shares = (run, suspended, hold, drain, max(0.0, 1 - run - suspended - hold - drain))
    colours = (_RUN[lane.qos], _PALE[lane.qos], _HOLD, _DRAIN, _LANE_PAPER)
    total = sum(shares)
    mixed = [
        round(sum(share * colour[i] for share, colour in zip(shares, colours, strict=True)) / total)
        for i in range(3)
    ]
    return mixed[0], mixed[1], mixed[2]


def _runs(values: Iterable[_T]) -> Iterator[tuple[int, int, _T]]:
    """(start, end, value) of the stretches of equal values."""
    start = 0
    for value, same in groupby(values):
        end = start + sum(1 for _ in same)
        yield start, end, value
        start = end


def _hatch(pen: ImageDraw.ImageDraw, left: int, right: int, top: int, bottom: int, colour: Colour) -> None:
    """Diagonal lines inside the rectangle, at places that do not depend on where it begins."""
    height = bottom - top
    for x in range((left - height) // 10 * 10, right, 10):
        # y falls as x grows; cut at both sides.
        start, end = max(x, left), min(x + height, right - 1)
        if start < end:
            pen.line((start, bottom - (start - x), end, bottom - (end - x)), colour, 1)


def _step_ns(scale: _Scale) -> int:
    """A round number that makes at most a dozen steps."""
    span = max(1, scale.end_ns - scale.start_ns)
    step = 1000
    while True:
        for factor in (1, 2, 5):
            if span / (step * factor) <= 12:
                return step * factor
        step *= 10


def _ticks(scale: _Scale) -> Iterator[tuple[int, float]]:
    step = _step_ns(scale)
    for after in range(0, scale.end_ns - scale.start_ns + 1, step):
        yield after, scale.x(scale.start_ns + after)


def _grid(pen: ImageDraw.ImageDraw, scale: _Scale, top: int, bottom: int) -> None:
    for _after, x in _ticks(scale):
        pen.line((x, top, x, bottom), _GRID, 1)


def _axis(pen: ImageDraw.ImageDraw, scale: _Scale, y: int) -> None:
    pen.line((scale.left, y, scale.right, y), _FAINT, 1)
    for after, x in _ticks(scale):
        pen.line((x, y, x, y + 6), _FAINT, 1)
        pen.text((x, y + 10), f"{after / 1e6:g}", _FAINT, _font(_SMALL), anchor="ma")
    pen.text((_MARGIN, y + 10), "ms", _FAINT, _font(_SMALL))


def _legend(pen: ImageDraw.ImageDraw, timeline: Timeline, y: int) -> None:
    x = _MARGIN
    classes = [qos for qos in _RUN if any(lane.qos == qos for lane in timeline.lanes)]
    kinds = {row.kind for row in timeline.rows}
    for qos in classes:
        x = _entry(
            pen, x, y, _RUN[qos], f"{qos}: has work and the GPU" if qos != "unknown" else "has the GPU"
        )
    for qos in classes:
        if any(row.kind == "suspended" and row.lane.qos == qos for row in timeline.rows):
            x = _entry(pen, x, y, _PALE[qos], f"{qos}: work, suspended", _RUN[qos])
    if "hold" in kinds:
        x = _entry(pen, x, y, _HOLD, "held back after online")
    if "drain" in kinds:
        x = _entry(pen, x, y, _DRAIN, "completes its work, to be evicted")
    if any(mark.kind == "work" for mark in timeline.marks):
        pen.polygon([(x + 4, y + 8), (x + 16, y + 8), (x + 10, y + 18)], _WORK)
        pen.text((x + 26, y + 3), "work seen", _INK, _font(_SMALL))


def _entry(
    pen: ImageDraw.ImageDraw, x: int, y: int, colour: Colour, text: str, hatch: Colour | None = None
) -> int:
    """Draws one entry and returns where the next one begins."""
    pen.rectangle((x, y + 2, x + 30, y + 20), colour)
    if hatch:
        _hatch(pen, x, x + 31, y + 2, y + 20, hatch)
    pen.text((x + 40, y + 3), text, _INK, _font(_SMALL))
    return x + 40 + int(pen.textlength(text, _font(_SMALL))) + 28
