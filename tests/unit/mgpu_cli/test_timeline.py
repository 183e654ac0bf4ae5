"""From the scheduler's events to who had the card when, and that as a trace and a picture."""

import json
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from mgpu_cli.timeline import account, collect, picture, rows, spans, trace
from mgpu_cli.timeline.account import Event, Who
from mgpu_cli.timeline.rows import Lane, Row, Timeline
from mgpu_cli.timeline.spans import Span
from oci_specs import schemas
from tests.unit.cli_support import FakeMgpud, container, list_reply, mgpu, sched

MS = 1_000_000
WEB, TRAIN, SCRAPE = (
    Who("web", "online", (0,)),
    Who("train", "offline", (0,)),
    Who("scrape", "offline", (0,)),
)
ALL = {"g-1": WEB, "g-2": TRAIN, "g-3": SCRAPE}


def event(
    at_ms: float, grant: str, kind: str, card: int | None = None, why: str = "none", since_ms: float = 0
) -> Event:
    return Event(int(at_ms * MS), int((since_ms or at_ms) * MS), grant, kind, card, why)


PREEMPTION = [
    *(event(1, grant, "added") for grant in ALL),
    event(2, "g-2", "running"),
    event(10, "g-2", "work", 0),
    event(40, "g-1", "work", 0),
    event(41, "g-2", "suspend", None, "preempted"),
    event(42, "g-2", "suspended", None, "preempted"),
    event(61, "g-1", "idle", 0, since_ms=60),
    event(160, "g-2", "resume"),
    event(161, "g-2", "running"),
    event(190, "g-2", "idle", 0, since_ms=180),
]


def read(
    events: list[Event], who: dict[str, Who], start_ms: int = 0, end_ms: int = 200, begin_ms: int = 0
) -> Timeline:
    return account.read(events, who, begin_ns=begin_ms * MS, start_ns=start_ms * MS, end_ns=end_ms * MS)


def told(timeline: Timeline, label: str, panel: str = "GPU 0") -> list[tuple[str, float, float, str]]:
    """What became of one lane, in ms."""
    return [
        (row.kind, row.start_ns / MS, row.end_ns / MS, row.why)
        for row in timeline.rows
        if (row.lane.panel, row.lane.label) == (panel, label)
    ]


def test_online_takes_the_card_and_offline_is_held_back_after_it() -> None:
    found = read(PREEMPTION, ALL)
    assert [lane.label for lane in found.lanes] == ["web", "scrape", "train"]
    assert told(found, "web") == [("run", 40, 60, "")]
    assert told(found, "train") == [
        ("run", 10, 42, ""),
        ("suspended", 42, 60, "preempted"),
        ("hold", 60, 161, "hold"),
        ("run", 161, 180, ""),
    ]
    assert told(found, "scrape") == []
    work = [(mark.lane.label, mark.at_ns / MS) for mark in found.marks if mark.kind == "work"]
    assert work == [("train", 10), ("web", 40)]


DRAIN = [
    *PREEMPTION[:8],
    event(50, "g-2", "drain"),
    event(51, "g-2", "running"),
    event(53, "g-2", "drain"),
    event(58, "g-2", "idle", 0, since_ms=57),
    event(59, "g-2", "drained"),
    event(61, "g-1", "idle", 0, since_ms=60),
]


def test_what_a_container_does_beside_online_since_it_is_evicted_is_told_apart() -> None:
    found = read(DRAIN, ALL)
    assert told(found, "train") == [
        ("run", 10, 42, ""),
        ("suspended", 42, 51, "preempted"),
        ("drain", 51, 57, ""),
    ]
    assert "running (evicted)" in [one["name"] for one in trace.chrome(found)["traceEvents"]]
    with picture.draw(found) as drawn:
        assert picture._DRAIN in {colour for _, colour in drawn.getcolors(1 << 24) or ()}


def test_window_cuts_runs_at_its_edges() -> None:
    found = read(PREEMPTION, ALL, 50, 100)
    assert told(found, "train") == [("suspended", 50, 60, "preempted"), ("hold", 60, 100, "hold")]
    assert told(found, "web") == [("run", 50, 60, "")]
    assert [mark.kind for mark in found.marks] == []


def test_container_with_two_cards_stands_back_on_both() -> None:
    who = {"g-1": Who("web", "online", (1,)), "g-2": Who("gang", "offline", (0, 1))}
    events = [
        event(1, "g-2", "added"),
        event(1, "g-2", "work", 0),
        event(5, "g-1", "work", 1),
        event(6, "g-2", "suspended", None, "preempted"),
        event(20, "g-1", "idle", 1, since_ms=20),
        event(30, "g-2", "running"),
    ]
    assert told(read(events, who), "gang")[:3] == [
        ("run", 1, 6, ""),
        ("suspended", 6, 20, "preempted"),
        ("hold", 20, 30, "hold"),
    ]
    assert told(read(events, who), "gang", "GPU 1") == []


def test_turns_are_suspended_and_not_held() -> None:
    events = [
        event(1, "g-2", "added"),
        event(1, "g-2", "work", 0),
        event(10, "g-2", "suspended", None, "slice"),
        event(20, "g-2", "running"),
    ]
    assert told(read(events, ALL), "train") == [
        ("run", 1, 10, ""),
        ("suspended", 10, 20, "slice"),
        ("run", 20, 200, ""),
    ]


def test_timeline_shows_states_from_before_its_first_event() -> None:
    late = [
        event(60, "g-1", "idle", 0, since_ms=55),
        event(161, "g-2", "running"),
        event(170, "g-2", "work", 0),
    ]
    busy = {
        "g-1": WEB,
        "g-2": TRAIN,
        "g-3": Who("scrape", "offline", (0,), busy=True, enabled=False, why="quota"),
    }
    found = read(late, busy, begin_ms=50)
    assert told(found, "web") == [("run", 50, 55, "")]
    assert told(found, "train") == [("run", 170, 200, "")]
    assert told(found, "scrape") == [
        ("suspended", 50, 55, "quota"),
        ("hold", 55, 161, "hold"),
        ("suspended", 161, 200, "quota"),
    ]


def test_ended_container_is_shown_to_its_end() -> None:
    events = [
        event(1, "g-9", "added"),
        event(2, "g-9", "work", 0),
        event(3, "g-9", "suspended", None, "hold"),
        event(9, "g-9", "removed"),
    ]
    found = read(events, {})
    assert told(found, "g-9") == [("run", 2, 3, ""), ("suspended", 3, 9, "hold")]
    assert [lane.qos for lane in found.lanes] == ["offline"]
    assert [lane.qos for lane in read(events[:2], {}).lanes] == ["unknown"]


def test_cards_are_in_the_order_of_their_numbers() -> None:
    lanes = [Lane(f"GPU {number}", "x", "online") for number in (10, 2, 0)]
    shown = rows.timeline([Row(lane, 0, 1, "run") for lane in lanes]).lanes
    assert [lane.panel for lane in shown] == ["GPU 0", "GPU 2", "GPU 10"]


span_lists = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=12)


def points(found: list[Span]) -> set[int]:
    return {point for start, end in found for point in range(start, end)}


@given(span_lists, span_lists)
def test_sets_of_time_are_sets(one: list[Span], other: list[Span]) -> None:
    a, b = spans.union(one), spans.union(other)
    assert points(a) == points(one)
    assert all(end < start for (_, end), (start, _) in pairwise(a))
    for found, wanted in (
        (spans.common(a, b), points(a) & points(b)),
        (spans.without(a, b), points(a) - points(b)),
    ):
        assert points(found) == wanted
        assert sum(end - start for start, end in found) == len(wanted), "nothing is counted twice"


def test_trace_is_what_perfetto_reads() -> None:
    """https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU: metadata, X and i
    events.
    """
    document = json.loads(json.dumps(trace.chrome(read(PREEMPTION, ALL, 20, 200))))
    events = document["traceEvents"]
    processes = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    threads = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert list(processes.values()) == ["GPU 0"]
    assert list(threads.values()) == ["web (online)", "scrape (offline)", "train (offline)"]
    assert 0 not in processes
    complete = [e for e in events if e["ph"] == "X"]
    seen = [(threads[e["pid"], e["tid"]], e["name"], e["ts"], e["dur"]) for e in complete]
    assert seen == [
        ("train (offline)", "running", 0, 22_000),
        ("web (online)", "running", 20_000, 20_000),
        ("train (offline)", "suspended (preempted)", 22_000, 18_000),
        ("train (offline)", "held", 40_000, 101_000),
        ("train (offline)", "running", 141_000, 19_000),
    ]
    for each in events:
        assert each["ph"] in "MXi"
        assert (each["pid"], each["tid"]) in threads or each["name"] == "process_name"
        assert each["ph"] == "M" or each["ts"] >= 0
        assert each["ph"] != "i" or each["s"] == "t"
    assert [e["name"] for e in events if e["ph"] == "i"][:3] == ["work seen", "told to stop", "stopped"]


def colours(image: Image.Image) -> set[Any]:
    return {colour for _, colour in image.getcolors(1 << 24) or []}


def test_picture_shows_each_kind_in_its_colour() -> None:
    image = picture.draw(read(PREEMPTION, ALL), "a title")
    assert image.width == picture.WIDTH
    shown = colours(image)
    for wanted in (picture._RUN["online"], picture._RUN["offline"], picture._PALE["offline"], picture._HOLD):
        assert wanted in shown
    higher = picture.draw(read(PREEMPTION, ALL | {"g-4": Who("more", "online", (0,))}), "a title")
    assert higher.height > image.height


def test_rows_shorter_than_a_pixel_are_mixed() -> None:
    lane = Lane("GPU 0", "x", "online")
    strobe = [Row(lane, at * 1000, at * 1000 + 500, "run") for at in range(10_000)]
    shown = colours(picture.draw(rows.timeline(strobe)))
    half = tuple((a + b) // 2 for a, b in zip(picture._RUN["online"], picture._LANE_PAPER, strict=True))
    assert any(max(abs(a - b) for a, b in zip(colour, half, strict=True)) < 8 for colour in shown)
    assert picture._RUN["online"] in shown, "the legend"


def test_picture_draws_rows_of_any_source() -> None:
    """Rows of any source: the simulated card's own account, say."""
    one = Row(Lane("GPU 0", "web", "online"), 0, 5 * MS, "run")
    other = Row(Lane("GPU 0, by its own account", "web", "online"), MS, 5 * MS, "run")
    assert picture.draw(rows.timeline([other, one])).height > picture.draw(rows.timeline([one])).height


def test_picture_draws_no_rows_and_odd_names() -> None:
    assert picture.draw(rows.timeline([])).width == picture.WIDTH
    odd = Lane("GPU 0", "\x1b[2J" + "x" * 300 + "漢", "unknown")
    picture.draw(rows.timeline([Row(odd, 5, 5 + MS, "suspended"), Row(odd, 0, 1, "run")]))


@pytest.fixture
def mgpud(mgpud: FakeMgpud) -> FakeMgpud:
    one, two = (
        container(id="g-1", pod="web", cards=[]),
        container(id="g-2", pod="train", **{"class": "offline"}),
    )
    for each in (one, two):
        each["cards"] = container()["cards"][:1]
    mgpud.reply_to("list", list_reply([one, two], []))
    mgpud.reply_to("timeline", page(PREEMPTION), page([]))
    return mgpud


def page(events: list[Event], now_ms: int = 200, lost: int = 0) -> dict[str, Any]:
    reply = {
        "version": 1,
        "ok": True,
        "next": 7,
        "lost": lost,
        "now_ns": now_ms * MS,
        "events": [list(each) for each in events],
    }
    return dict(schemas.validate("control#timeline-reply", reply))


def test_timeline_prints_sums_and_writes_both_files(mgpud: FakeMgpud, tmp_path: Path) -> None:
    png, out = tmp_path / "a.png", tmp_path / "a.json"
    result = mgpu("timeline", "--last", "0.19", "--png", str(png), "--trace", str(out))
    assert (result.exit_code, result.stderr) == (0, "")
    assert [line.split() for line in result.stdout.splitlines()][1:3] == [
        ["0", "web", "online", "20.0", "0.0", "0.0", "0.0"],
        ["0", "train", "offline", "51.0", "18.0", "101.0", "0.0"],
    ]
    with Image.open(png) as image:
        assert (image.format, image.width) == ("PNG", picture.WIDTH)
    assert json.loads(out.read_text())["traceEvents"]
    assert mgpud.asked[1] == {"version": 1, "verb": "timeline", "since": 0}


def test_timeline_json_has_the_rows(mgpud: FakeMgpud) -> None:
    found = json.loads(mgpu("timeline", "-o", "json", "--last", "0.19").output)
    assert found["rows"][0] == {
        "panel": "GPU 0",
        "label": "train",
        "qos": "offline",
        "start_ns": 10 * MS,
        "end_ns": 42 * MS,
        "kind": "run",
        "why": "",
    }
    assert found["end_ns"] - found["start_ns"] == 190 * MS


def test_timeline_reads_on_while_pages_are_full(mgpud: FakeMgpud, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collect, "PAGE_EVENTS", 6)
    mgpud.reply_to("timeline", page(PREEMPTION[:6]), page(PREEMPTION[6:12]), page(PREEMPTION[12:]))
    assert "101.0" in mgpu("timeline", "--last", "0.19").stdout
    assert [asked.get("since") for asked in mgpud.asked] == [None, 0, 7, 7]


def test_timeline_watches_for_so_long(mgpud: FakeMgpud, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    mgpud.reply_to(
        "timeline", page(PREEMPTION[:3], 5), page(PREEMPTION[3:9], 105), page(PREEMPTION[9:], 205)
    )
    result = mgpu("timeline", "--seconds", "0.2")
    assert "train      offline  51.0    18.0          101.0" in result.output
    assert slept == [pytest.approx(0.2), pytest.approx(0.1)]


def test_timeline_says_what_was_forgotten(mgpud: FakeMgpud) -> None:
    mgpud.reply_to("timeline", page(PREEMPTION[6:], lost=3))
    result = mgpu("timeline", "--last", "3")
    assert result.stderr == "mgpu: mgpud remembers only the last 0.2 s\n"
    assert ["0", "train", "offline", "20.0", "18.0", "101.0", "0.0"] in [
        line.split() for line in result.stdout.splitlines()
    ]


def test_timeline_follows_into_a_file_until_interrupted(
    mgpud: FakeMgpud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", interrupt)
    mgpud.reply_to("timeline", page([]), page(PREEMPTION[3:5], lost=2))
    assert mgpu("timeline", "--follow", str(tmp_path / "log")).exit_code == 0
    first, second, lost = map(json.loads, (tmp_path / "log").read_text().splitlines())
    assert first == {**PREEMPTION[3]._asdict(), "container": "train"}
    assert (second["kind"], second["card"]) == ("work", 0)
    assert lost == {"lost": 2}


@pytest.mark.parametrize(
    "bad",
    [("--seconds", "1", "--last", "1"), ("--follow", "-", "--png", "x"), ("--last", "0"), ("--follow",)],
)
def test_timeline_refuses_contradicting_options(mgpud: FakeMgpud, bad: tuple[str, ...]) -> None:
    result = mgpu("timeline", *bad)
    assert (result.exit_code, mgpud.asked) == (2, [])


@pytest.mark.parametrize("option", ["--png", "--trace", "--follow"])
def test_unwritable_file_is_refused_in_one_line(mgpud: FakeMgpud, tmp_path: Path, option: str) -> None:
    result = mgpu("timeline", option, str(tmp_path / "no" / "such"))
    assert result.exit_code == 1
    assert result.stderr == (
        f'mgpu: cannot write "{tmp_path}/no/such": No such file or directory; name another file\n'
    )


def test_timeline_without_events_is_one_line(mgpud: FakeMgpud) -> None:
    mgpud.reply_to("timeline", page([]))
    mgpud.reply_to("list", list_reply([container(sched=None)], []))
    assert mgpu("timeline").output == "No container has had a GPU.\n"
    mgpud.reply_to("list", list_reply([container(sched=sched(busy=True))], []))
    assert [line.split()[3] for line in mgpu("timeline", "--last", "2").output.splitlines()[1:]] == [
        "2000.0"
    ] * 2
