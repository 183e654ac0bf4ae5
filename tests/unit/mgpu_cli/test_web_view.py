"""What the page of `mgpu web` is told: what the commands tell, of bounded size, and mgpud is seldom asked."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mgpu_cli import names
from mgpu_cli.state import StateDir
from mgpu_cli.timeline.rows import Lane, Row, Timeline
from mgpu_cli.web import view
from mgpu_cli.web.columns import COLUMNS, columns
from mgpu_cli.web.command import TOKEN_LEAST_CHARS
from mgpu_cli.web.server import CONNECTIONS_MAX, _Session
from mgpu_cli.web.view import AGE_S, COLUMN_NS, SHOWN_S, STORY_LINES, View
from tests.support.places import REPOSITORY
from tests.unit.cli_support import HEALTH, FakeMgpud, card, container, event, list_reply, sched

OK = {"version": 1, "ok": True}
OTHER = "fedcba9876543210"
S = 10**9
NOW_NS = 1000 * S
ONE_CARD = container()["cards"][:1]


class Clock:
    def __init__(self) -> None:
        self.at_s = 0.0

    def __call__(self) -> float:
        return self.at_s


class Looking:
    """A view of the stand-in, and a clock that a look moves on."""

    def __init__(self, fake: FakeMgpud, root: Path) -> None:
        self.fake, self.clock = fake, Clock()
        self.view = View(StateDir(root), self.clock)
        fake.reply_to("health", {**OK, **HEALTH, "generation": 1})
        fake.reply_to("watch", {**OK, "next": 0, "events": []})
        self.lists([container(cards=ONE_CARD)])
        self.happens()

    def lists(self, *listings: list[dict[str, Any]]) -> None:
        replies = [
            list_reply(containers, [card(), card(index=1)], NOW_NS + i * S)
            for i, containers in enumerate(listings)
        ]
        # Only when something else is listed: a reply is said again and again.
        self.fake.reply_to("list", *replies)

    def happens(self, *events: list[Any], lost: int = 0, now_ns: int = NOW_NS) -> None:
        reply = {**OK, "next": len(events), "lost": lost, "now_ns": now_ns, "events": list(events)}
        self.fake.reply_to("timeline", reply, {**reply, "lost": 0, "events": []})

    def look(self) -> dict[str, Any]:
        self.clock.at_s += AGE_S
        found: dict[str, Any] = json.loads(self.view.now())
        return found

    def lane(self) -> dict[str, list[int]]:
        [lane] = self.look()["timeline"]["lanes"]
        kinds: dict[str, list[int]] = lane["kinds"]
        return kinds


@pytest.fixture
def looking(mgpud: FakeMgpud, tmp_path: Path) -> Looking:
    return Looking(mgpud, tmp_path)


def test_it_shows_what_the_commands_show(looking: Looking) -> None:
    named = {"pod": "web-0", "namespace": "shop", "container": "main", "cards": ONE_CARD}
    looking.lists(
        [container(**named, sched=sched(busy=True, run_ns=S))],
        [container(**named, sched=sched(busy=True, run_ns=S + S // 4))],
    )
    told = [event(1, pod="web-0"), event(2, OTHER) | {"text": "a\x1b[2J\nb"}]
    looking.fake.reply_to("watch", {**OK, "next": 3, "events": told})
    looking.look()
    found = looking.look()
    assert ("ok", "mgpud") in [(check["state"], check["name"]) for check in found["health"]]
    [shown] = found["containers"]
    assert (shown["label"], shown["says"]) == ("shop/web-0/main", "bound")
    [share] = found["cards"][0]["shares"]
    assert (share["share_percent"], share["state"]) == (25.0, "running")
    assert found["cards"][1]["shares"] == []
    assert [each["label"] for each in found["events"]] == ["shop/web-0/main", OTHER[:12]]
    assert "\x1b" not in found["events"][1]["text"]
    [lane] = found["timeline"]["lanes"]
    assert (lane["card"], lane["label"], lane["class"]) == (0, "shop/web-0/main", "online")


def test_mgpud_is_asked_once_for_all_who_look(looking: Looking) -> None:
    looking.look()
    asked = len(looking.fake.asked)
    for _ in range(20):
        looking.view.now()
    assert len(looking.fake.asked) == asked
    looking.look()
    assert len(looking.fake.asked) > asked


def test_it_asks_nothing_that_changes_anything(looking: Looking) -> None:
    looking.look()
    assert {each["verb"] for each in looking.fake.asked} == {"health", "list", "watch", "timeline"}


def test_node_without_mgpud_says_so(tmp_path: Path) -> None:
    found = json.loads(View(StateDir(tmp_path)).now())
    assert "cards" not in found
    [first, *_] = found["health"]
    assert (first["state"], first["name"]) == ("failed", "mgpud")


def test_mgpud_that_says_no_in_between_is_gone(looking: Looking) -> None:
    looking.fake.reply_to("watch", {**OK, "ok": False, "error": {"code": "c", "message": "m", "hint": "h"}})
    found = looking.look()
    assert found["health"][0] == {"state": "failed", "name": "mgpud", "text": "m"}
    assert "cards" not in found


def work(at_s: float, kind: str) -> list[Any]:
    return [NOW_NS + round(at_s * S), NOW_NS + round(at_s * S), "g1", kind, 0, "none"]


def test_timeline_is_what_happened(looking: Looking) -> None:
    looking.happens(work(-20, "work"), work(-5, "idle"))
    run = looking.lane()["run"]
    assert len(run) == COLUMNS
    per_s = COLUMNS / SHOWN_S
    assert (round(sum(run) / 100 / per_s), run[0], run[-1]) == (15, 0, 0)
    # What was read before is still there, and has moved on.
    looking.happens(now_ns=NOW_NS + 10 * S)
    assert looking.lane()["run"] == run[round(10 * per_s) :] + [0] * round(10 * per_s)


def test_what_lies_between_two_looks_is_not_made_up(looking: Looking) -> None:
    """Nobody looked while mgpud forgot: what was kept from before does not go on until now."""
    looking.happens(work(-25, "work"))
    assert sum(looking.lane()["run"]) > 0
    later_ns = NOW_NS + 10 * S
    looking.lists([])
    ended = [
        [later_ns - s * S, later_ns - s * S, "g2", what, 0, "none"] for s, what in ((3, "work"), (1, "idle"))
    ]
    looking.happens(*ended, lost=5, now_ns=later_ns)
    assert [lane["label"] for lane in looking.look()["timeline"]["lanes"]] == ["g2"]


def test_events_of_another_mgpud_are_not_added_to_the_last_ones(looking: Looking) -> None:
    looking.happens(work(-20, "work"))
    looking.look()
    looking.fake.reply_to("health", {**OK, **HEALTH, "generation": 2})
    looking.look()
    since = [each["since"] for each in looking.fake.asked if each["verb"] == "timeline"]
    assert since == [0, 0]


def test_containers_that_ended_long_ago_are_forgotten(looking: Looking) -> None:
    looking.look()
    looking.lists([])
    looking.happens(now_ns=NOW_NS + 200 * S)
    assert looking.look()["timeline"]["lanes"] == []
    assert looking.view._collector.who == {}


def test_events_that_are_kept_are_bounded(looking: Looking, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view, "KEPT_EVENTS", 100)
    for _ in range(3):
        looking.happens(*(work(-1, "work") for _ in range(70)))
        looking.look()
    assert len(looking.view._events) == 100


def test_columns_are_as_many_whatever_happened() -> None:
    lane = Lane("GPU 3", "x", "offline")
    turns = [Row(lane, i * 10, i * 10 + 5, "run") for i in range(100_000)]
    found = columns(Timeline(0, 1_000_000, [lane], turns, []))
    assert found == [
        {"card": 3, "label": "x", "class": "offline", "kinds": {"run": pytest.approx([50] * COLUMNS, abs=1)}}
    ]
    whole = columns(Timeline(0, COLUMNS, [lane], [Row(lane, 1, 3, "hold")], []))
    assert whole[0]["kinds"] == {"hold": [0, 100, 100] + [0] * (COLUMNS - 3)}
    assert COLUMN_NS * COLUMNS == SHOWN_S * S


def logged(root: Path, lines: list[str]) -> None:
    (root / "log").mkdir(exist_ok=True)
    (root / "log" / "mgpud.log").write_text("".join(f"{line}\n" for line in lines))


def line(number: int, who: str) -> str:
    return f'time=2026-01-02T03:04:05Z level=info event=refused container={who} why="no {number}" pod=p'


def test_log_is_of_one_container_and_its_end(tmp_path: Path) -> None:
    clock = Clock()
    shown = View(StateDir(tmp_path), clock)
    logged(tmp_path, ["ready", *(line(i, OTHER if i % 2 else "abcd") for i in range(6000))])
    found = json.loads(shown.log(OTHER))
    assert len(found) == STORY_LINES
    assert found[-1] == {
        "time": "2026-01-02T03:04:05Z",
        "level": "info",
        "event": "refused",
        "text": "why=no 5999",
    }
    assert json.loads(shown.log("another")) == []
    logged(tmp_path, [line(1, OTHER)])
    assert len(json.loads(shown.log(OTHER))) == STORY_LINES
    clock.at_s = AGE_S
    assert len(json.loads(shown.log(OTHER))) == 1


def test_names_that_are_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "_known", {})
    give: Callable[[list[dict[str, Any]]], None] = names.give
    for i in range(2 * names._KNOWN_MAX):
        give([container(container_id=f"c{i}")])
    assert len(names._known) <= names._KNOWN_MAX + 1


def test_page_of_docs_has_the_numbers() -> None:
    page = " ".join((REPOSITORY / "docs" / "web.md").read_text().split())
    for text in (
        f"the last {SHOWN_S} seconds",
        f"columns of {COLUMN_NS // 10**6} ms",
        f"the last {STORY_LINES} lines",
        f"more than {CONNECTIONS_MAX} connections",
        f"after {_Session.timeout:.0f} s of silence",
        f"token of {TOKEN_LEAST_CHARS} characters or more",
        f"asked {'twice' if AGE_S == 0.5 else ''} a second at most",
    ):
        assert text in page
