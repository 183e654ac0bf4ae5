"""`mgpu set`, `mgpu policy` and `mgpu top`: what they ask, and what they show of the answer."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import Any

import pytest

from mgpu_cli import evict, frame, policies, render, top
from oci_specs import schemas, vocabulary
from tests.unit.cli_support import FakeMgpud, card, container, list_reply, mgpu, sched

OK = {"version": 1, "ok": True}
NO = {**OK, "ok": False, "error": {"code": "c", "message": "m", "hint": "h"}}
S = 10**9


def rows(output: str) -> list[list[str]]:
    return [line.split() for line in output.splitlines()]


def test_set_asks_for_what_is_given_and_shows_the_container(mgpud: FakeMgpud) -> None:
    mgpud.reply(schemas.validate("control#set-reply", {**OK, "container": container()}))
    result = mgpu("set", "web-0", "--core", "30", "--class", "offline", "--memory", "2048")
    assert result.exit_code == 0
    assert rows(result.output)[1][0] == "0123456789ab"
    members = {"container": "web-0", "core_percent": 30, "class": "offline", "memory_mib": 2048}
    assert mgpud.asked == [{"version": 1, "verb": "set", **members}]
    schemas.validate("control", mgpud.asked[0])
    assert json.loads(mgpu("set", "web-0", "--core", "1", "-o", "json").output) == container()
    assert mgpud.asked[1] == {"version": 1, "verb": "set", "container": "web-0", "core_percent": 1}


@pytest.mark.parametrize("bad", [(), ("--core", "0"), ("--memory", "-1"), ("--class", "both")])
def test_set_wants_something_that_can_be(mgpud: FakeMgpud, bad: tuple[str, ...]) -> None:
    result = mgpu("set", "web-0", *bad)
    assert (result.exit_code, mgpud.asked) == (2, [])


def policy_row(index: int, **changed: Any) -> dict[str, Any]:
    return {"index": index, "policy": "fixed-share", "owner": "node", "tenants": []} | changed


def test_policy_shows_its_origin(mgpud: FakeMgpud) -> None:
    taken = policy_row(
        1, policy="native-burst-share", owner="0123456789abcdef", tenants=["0123456789abcdef", "b"]
    )
    reply = {**OK, "cards": [policy_row(0), taken]}
    mgpud.reply(schemas.validate("control#policy-reply", reply))
    assert rows(mgpu("policy").output)[1:] == [
        ["0", "fixed-share", "node", "-"],
        ["1", "native-burst-share", "0123456789ab", "0123456789ab,", "b"],
    ]
    assert json.loads(mgpu("policy", "-o", "json").output) == reply["cards"]
    mgpud.reply({**OK, "cards": []})
    assert mgpu("policy").output == "This node has no GPUs.\n"
    assert mgpud.asked[0] == {"version": 1, "verb": "policy"}


@pytest.mark.parametrize(
    ("said", "meant"), [("fs", "fixed-share"), ("0", "native-burst-share"), ("bs", None)]
)
def test_policy_sets_by_any_name_for_cards_or_all(mgpud: FakeMgpud, said: str, meant: str | None) -> None:
    mgpud.reply({**OK, "cards": [policy_row(0)]})
    meant = meant or "guaranteed-burst-share"
    assert mgpu("policy", "--card", "0", "--card", "2", said).exit_code == 0
    assert mgpu("policy", said).exit_code == 0
    asked = {"version": 1, "verb": "policy", "policy": meant}
    assert mgpud.asked == [{**asked, "cards": [0, 2]}, asked]
    assert mgpu("policy", "share").exit_code == 2


def test_every_policy_name_means_one_that_the_protocol_has() -> None:
    names = [*policies.NAMES, *policies.OTHER_NAMES]
    assert {policies.canonical(name) for name in names} == set(vocabulary.POLICIES)


@pytest.mark.parametrize(
    "command", [("set", "x", "--core", "1"), ("policy", "fs"), ("top", "--once"), ("timeline",)]
)
def test_refusal_is_one_line_and_status_1(mgpud: FakeMgpud, command: tuple[str, ...]) -> None:
    mgpud.reply(NO)
    result = mgpu(*command)
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", "mgpu: m; h\n")


def busy(grant: str, run_s: float, **changed: Any) -> dict[str, Any]:
    """One container on card 0 that has run for run_s."""
    own = container()["cards"][:1]
    state = sched(busy=True, run_ns=int(run_s * S), **changed.pop("sched", {}))
    return container(id=grant, container_id=f"{grant}-id", cards=own, sched=state, **changed)


def test_frame_is_shares_of_the_time_between_two_lists() -> None:
    offline = {"class": "offline", "sched": {"enabled": False, "why": "preempted", "preemptions": 3}}
    before = list_reply([busy("g-1", 1.0), busy("g-2", 2.0), busy("g-3", 7.0)], [card()], 10 * S)
    after = list_reply(
        [busy("g-1", 1.25, **offline), busy("g-2", 2.5, **offline), busy("g-3", 7.5), busy("g-4", 0.1)],
        [card(), card(index=1)],
        11 * S,
    )
    found = frame.between(before, after)
    assert found["interval_ns"] == S
    shown = found["cards"][0]["containers"]
    assert [(row["id"], row["share_percent"]) for row in shown] == [
        ("g-3", 50.0),
        ("g-4", None),
        ("g-2", 50.0),
        ("g-1", 25.0),
    ]
    assert (shown[2]["state"], shown[2]["preemptions"]) == ("suspended (preempted)", 3)
    assert (found["cards"][0]["online_busy"], found["cards"][1]["online_busy"]) == (True, False)
    assert found["cards"][1]["containers"] == []


def test_top_once_shows_each_cards_containers(mgpud: FakeMgpud) -> None:
    second = container(pod="web-0", sched=sched(busy=True, run_ns=3 * S // 4))
    mgpud.reply_to(
        "list",
        list_reply([container()], [card(), card(index=1)], S),
        list_reply([second], [card(), card(index=1, policy=None, used_bytes=0)], 2 * S),
    )
    result = mgpu("top", "--once", "--interval", "0.05")
    assert result.exit_code == 0
    first, columns, row, heading, _, other = rows(result.output)
    assert " ".join(first) == "GPU 0 Tesla V100-SXM2-16GB fixed-share online busy 512/16160 MiB"
    assert columns == rows(" ".join(top.COLUMNS))[0]
    assert row == ["0123456789ab", "online", "100", "75.0", "running", "0", "512/4309", "web-0"]
    assert " ".join(heading) == "GPU 1 Tesla V100-SXM2-16GB free online busy 0/16160 MiB"
    assert other[-2:] == ["0/4309", "web-0"]
    mgpud.reply_to("list", list_reply([], [], S))
    assert mgpu("top", "--once", "--interval", "0.05").output == "This node has no GPUs.\n"


def test_top_json_is_a_frame_a_line(mgpud: FakeMgpud) -> None:
    mgpud.reply_to("list", *(list_reply([container()], [card()], at * S) for at in (1, 2)))
    result = mgpu("top", "--once", "--interval", "0.05", "-o", "json")
    [line] = result.output.splitlines()
    assert json.loads(line)["cards"][0]["containers"][0]["quota_percent"] == 100


def test_top_ends_cleanly_on_interrupt(mgpud: FakeMgpud, monkeypatch: pytest.MonkeyPatch) -> None:
    mgpud.reply_to("list", *(list_reply([container()], [card()], at * S) for at in (1, 2)))
    slept = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", sleep)
    result = mgpu("top", "--interval", "0.5")
    assert (result.exit_code, slept) == (0, [0.5] * 3)
    assert result.output.count("GPU 0") == 2


def test_top_on_a_terminal_redraws_and_leaves_it_as_it_was(mgpud: FakeMgpud) -> None:
    mgpud.reply_to("list", *(list_reply([container()], [card()], at * S) for at in (1, 2)))
    ours, its = pty.openpty()
    argv = [sys.executable, "-c", "from mgpu_cli.main import main; main()", "top", "--interval", "0.05"]
    shown = b""
    with subprocess.Popen(
        argv, stdin=its, stdout=its, stderr=its, env={**os.environ, "TERM": "xterm"}
    ) as top_:
        os.close(its)
        while b"GPU 0" not in shown:
            shown += os.read(ours, 65536)
        top_.send_signal(signal.SIGINT)
        # EIO is how a terminal's end looks on this side.
        with suppress(OSError):
            while data := os.read(ours, 65536):
                shown += data
    os.close(ours)
    assert top_.returncode == 0
    entered, left = b"\x1b[?1049h", b"\x1b[?1049l"
    assert shown.count(entered) == shown.count(left) == 1
    assert b"Traceback" not in shown
    assert b"Aborted" not in shown


def test_quota_that_the_policy_does_not_heed_is_not_shown(mgpud: FakeMgpud) -> None:
    native = container(policy="native-burst-share", sched=sched(quota_percent=50))
    found = frame.between(list_reply([], [card()], S), list_reply([native], [card()], 2 * S))
    assert top.text(found).plain.splitlines()[2].split()[2:4] == ["-", "-"]


@pytest.mark.parametrize(
    ("state", "shown"),
    [
        (None, "-"),
        (sched(), "idle"),
        (sched(busy=True), "running"),
        (sched(busy=True, enabled=False, why="hold"), "suspended (hold)"),
        (sched(enabled=False, why="idle"), "idle, suspended"),
    ],
)
def test_activity_in_words(state: dict[str, Any] | None, shown: str) -> None:
    assert render.activity(state) == shown


def test_top_shows_the_part_with_a_video_engine_at_work(mgpud: FakeMgpud) -> None:
    before, after = (sched(busy=True, run_ns=n * S // 2, video_ns=n * S // 4) for n in (1, 2))
    mgpud.reply_to(
        "list",
        list_reply([container(sched=before)], [card()], S),
        list_reply([container(sched=after)], [card()], 2 * S),
    )
    row = rows(mgpu("top", "--once", "--interval", "0.05").output)[2]
    assert row[3:7] == ["50.0", "running,", "video", "25.0%"]


def test_describe_says_what_the_scheduler_did(mgpud: FakeMgpud) -> None:
    state = sched(busy=True, run_ns=1_500_000_000, suspended_ns=250_000_000, preemptions=1, quota_percent=30)
    mgpud.reply(list_reply([container(sched=state)], []))
    shown = rows(mgpu("describe", "0123").output)
    assert ["Activity:", "running"] in shown
    assert ["Share:", "30", "percent", "of", "each", "GPU"] in shown
    assert ["Ran:", "1.500", "s"] in shown
    assert ["Suspended:", "0.250", "s,", "preempted", "once"] in shown
    mgpud.reply(list_reply([container(sched={**state, "video_ns": 500_000_000})], []))
    shown = rows(mgpu("describe", "0123").output)
    assert ["Ran:", *["1.500", "s,", "0.500", "s", "of", "it", "on", "video", "engines"]] in shown
    mgpud.reply(list_reply([container(sched=None, cards=[])], []))
    assert ["Activity:", "-"] in rows(mgpu("describe", "0123").output)


def test_describe_says_when_an_evicted_container_comes_back(mgpud: FakeMgpud) -> None:
    why = "GPU 0 has 50 of 80 MiB for it; 1 s after there is room for it"
    reclaim = {
        "state": "evicted",
        "evicted_bytes": 80 << 20,
        "by_hand": False,
        "not_moved": None,
        "asked": None,
    }
    mgpud.reply(list_reply([container(reclaimable=True, reclaim={**reclaim, "comes_back": why})], []))
    assert re.search(rf"^Comes back: +{re.escape(why)}$", mgpu("describe", "0123").output, re.MULTILINE)


def test_evict_says_how_far_it_is(mgpud: FakeMgpud, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evict, "SAID_S", 0.0)
    steps = []
    for state, away in (("running", 0), ("evicting", 0), ("evicting", 0), ("evicting", 30), ("evicted", 80)):
        reclaim = {"state": state, "evicted_bytes": 0, "by_hand": True, "not_moved": None, "asked": "evict"}
        made = container(reclaim=reclaim)
        for each in made["cards"]:
            each |= {"evicted_bytes": 0, "used_bytes": 0}
        made["cards"][0] |= {"evicted_bytes": away << 20, "used_bytes": (80 - away) << 20}
        steps.append(made)
    mgpud.reply_to("evict", {**OK, "container": steps[0]})
    mgpud.reply_to("list", *(list_reply([step], []) for step in steps[1:]))
    result = mgpu("evict", "web-0")
    assert result.exit_code == 0
    assert result.stderr.splitlines() == [
        "running: 0 of 80 MiB in host memory",
        "evicting: 0 of 80 MiB in host memory",
        "evicting: 30 of 80 MiB in host memory",
    ]


def test_evict_ends_when_mgpud_has_forgotten_what_it_was_asked(mgpud: FakeMgpud) -> None:
    reclaim = {"state": "running", "evicted_bytes": 0, "by_hand": False, "not_moved": None, "asked": "evict"}
    asked, forgotten = (container(reclaim={**reclaim, "asked": what}) for what in ("evict", None))
    mgpud.reply_to("evict", {**OK, "container": asked})
    mgpud.reply_to("list", list_reply([asked], []), list_reply([forgotten], []))
    result = mgpu("evict", "web-0")
    assert result.exit_code == 1
    assert "is running, and mgpud knows of no request to evict it" in result.output
