"""A timeline as columns of equal width, so that what is sent does not grow with what happened."""

from typing import Any, get_args

from mgpu_cli.timeline.rows import Kind, Lane, Timeline

COLUMNS = 240


def columns(found: Timeline) -> list[dict[str, Any]]:
    """Each lane with what part of each column was of each kind, in percent; a kind without any is left
    out.
    """
    width_ns = max((found.end_ns - found.start_ns) / COLUMNS, 1)
    parts: dict[Lane, dict[Kind, list[float]]] = {lane: {} for lane in found.lanes}
    for row in found.rows:
        own = parts[row.lane].setdefault(row.kind, [0.0] * COLUMNS)
        start, end = ((at_ns - found.start_ns) / width_ns for at_ns in (row.start_ns, row.end_ns))
        for column in range(int(start), min(COLUMNS, int(end) + 1)):
            own[column] += max(0.0, min(end, column + 1) - max(start, column))
    return [
        {
            "card": int(lane.panel.removeprefix("GPU ")),
            "label": lane.label,
            "class": lane.qos,
            "kinds": {
                kind: [min(100, round(100 * part)) for part in kinds[kind]]
                for kind in get_args(Kind)
                if kind in kinds
            },
        }
        for lane, kinds in parts.items()
    ]
