"""A timeline as Chrome's trace-event JSON, which ui.perfetto.dev and chrome://tracing open."""

from typing import Any

from mgpu_cli.timeline.rows import Lane, Mark, Row, Timeline

_NAMES = {"run": "running", "suspended": "suspended", "hold": "held", "drain": "running (evicted)"}
_INSTANTS = {
    "work": "work seen",
    "suspend": "told to stop",
    "suspended": "stopped",
    "resume": "told to run",
    "running": "runs",
}
# Colours by name: the viewers' own palette has no others.
_COLOURS = {
    "run": "thread_state_running",
    "suspended": "thread_state_sleeping",
    "hold": "thread_state_iowait",
    "drain": "thread_state_runnable",
}


def chrome(timeline: Timeline) -> dict[str, Any]:
    """A process for each card and a thread for each container on it; instants in us from the window's
    start."""
    # Perfetto takes process 0 for the kernel's idle task.
    panels = {
        panel: number for number, panel in enumerate(dict.fromkeys(x.panel for x in timeline.lanes), 1)
    }
    ids = {lane: (panels[lane.panel], number) for number, lane in enumerate(timeline.lanes, 1)}
    events = [_named("process_name", panels[panel], 0, panel) for panel in panels]
    for lane, (process, thread) in ids.items():
        events.append(_named("thread_name", process, thread, _thread(lane)))
        events.append(_meta("thread_sort_index", process, thread, {"sort_index": thread}))
    events += [_complete(row, ids[row.lane], timeline.start_ns) for row in timeline.rows]
    events += [_instant(mark, ids[mark.lane], timeline.start_ns) for mark in timeline.marks]
    return {"displayTimeUnit": "ms", "traceEvents": events}


def _thread(lane: Lane) -> str:
    return lane.label if lane.qos == "unknown" else f"{lane.label} ({lane.qos})"


def _named(kind: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return _meta(kind, process, thread, {"name": name})


def _meta(kind: str, process: int, thread: int, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": process, "tid": thread, "args": arguments}


def _complete(row: Row, at: tuple[int, int], start_ns: int) -> dict[str, Any]:
    return {
        "ph": "X",
        "name": f"{_NAMES[row.kind]} ({row.why})"
        if row.kind == "suspended" and row.why
        else _NAMES[row.kind],
        "cat": row.lane.qos,
        "cname": _COLOURS[row.kind],
        "pid": at[0],
        "tid": at[1],
        "ts": (row.start_ns - start_ns) / 1000,
        "dur": (row.end_ns - row.start_ns) / 1000,
    }


def _instant(mark: Mark, at: tuple[int, int], start_ns: int) -> dict[str, Any]:
    return {
        "ph": "i",
        "name": _INSTANTS[mark.kind],
        "cat": mark.lane.qos,
        "s": "t",
        "pid": at[0],
        "tid": at[1],
        "ts": (mark.at_ns - start_ns) / 1000,
    }
