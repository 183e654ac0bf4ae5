"""The Grafana dashboard: as far as it can be judged without a Grafana, it loads, and what it asks for is
there.
"""

import re
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from tests.support import dashboard, promtool
from tests.support.places import REPOSITORY
from tests.unit.metrics_support import METRIC, exported_labels

GRID_COLUMNS = 24
# Panel types and units of Grafana's own, of those that are used here.
TYPES = {"stat", "timeseries"}
UNITS = {"none", "s", "bytes", "percentunit", "ops"}


@pytest.fixture(scope="module")
def board() -> dict[str, Any]:
    return dashboard.load()


@pytest.fixture(scope="module")
def exported() -> dict[str, set[str]]:
    return exported_labels()


def test_dashboard_has_the_parts_that_grafana_needs(board: dict[str, Any]) -> None:
    assert {"title", "uid", "schemaVersion", "templating", "time", "panels"} <= board.keys()
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,40}", board["uid"])
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    for panel in board["panels"]:
        assert panel["type"] in TYPES
        assert panel["fieldConfig"]["defaults"]["unit"] in UNITS
        assert panel["title"]
        assert panel["description"]
        letters = [target["refId"] for target in panel["targets"]]
        assert len(set(letters)) == len(letters) > 0
        for each in (panel, *panel["targets"]):
            assert each["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


def test_panels_lie_on_the_grid_side_by_side(board: dict[str, Any]) -> None:
    places = [panel["gridPos"] for panel in board["panels"]]
    for place in places:
        assert place["w"] > 0
        assert place["h"] > 0
        assert 0 <= place["x"] <= GRID_COLUMNS - place["w"]
    for one, other in combinations(places, 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        above = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or above, (one, other)


def test_every_variable_that_is_used_is_defined_and_the_other_way_round(board: dict[str, Any]) -> None:
    defined = {variable["name"] for variable in board["templating"]["list"]}
    texts = [*dashboard.expressions(board).values(), "${datasource}"]
    texts += [variable["definition"] for variable in board["templating"]["list"] if "definition" in variable]
    used = {name.strip("{}") for text in texts for name in re.findall(r"\$(\{?\w+\}?)", text)}
    assert used - {"__rate_interval"} == defined


def test_promtool_takes_every_expression(board: dict[str, Any], tmp_path: Path) -> None:
    found = dashboard.expressions(board)
    assert len(found) > 20
    assert (
        promtool.bad_expressions({name: dashboard.filled(text) for name, text in found.items()}, tmp_path)
        == ""
    )


def test_promtool_is_seen_to_refuse(tmp_path: Path) -> None:
    assert "parse error" in promtool.bad_expressions({"x": "sum(rate(mgpu_x)) by"}, tmp_path)


def test_every_metric_that_is_asked_for_is_exported(
    board: dict[str, Any], exported: dict[str, set[str]]
) -> None:
    texts = [*dashboard.expressions(board).values()]
    texts += [variable["definition"] for variable in board["templating"]["list"] if "definition" in variable]
    asked = {name for text in texts for name in METRIC.findall(text)}
    assert len(asked) > 15
    assert asked <= exported.keys()


def test_every_label_that_is_asked_for_or_shown_is_one_of_the_metrics(
    board: dict[str, Any], exported: dict[str, set[str]]
) -> None:
    for panel in board["panels"]:
        for target in panel["targets"]:
            for metric, matchers in re.findall(r"(mgpu_[a-z_]+)\{([^}]*)\}", target["expr"]):
                asked = set(re.findall(r"(\w+)=~", matchers)) - {"instance"}
                assert asked <= exported[metric], target["expr"]
            metrics = METRIC.findall(target["expr"])
            shown = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) - {"instance"}
            assert shown <= set().union(*(exported[name] for name in metrics)), target


def test_page_has_every_metric_and_no_other(exported: dict[str, set[str]]) -> None:
    page = (REPOSITORY / "docs" / "metrics.md").read_text()
    said = set(re.findall(r"^\| `(mgpu_[a-z_]+)` \|", page, re.MULTILINE))
    histogram = {name for name in exported if re.search(r"_(bucket|sum|count)$", name)}
    assert said == {name for name in exported if name.startswith("mgpu_")} - histogram | {
        re.sub(r"_(bucket|sum|count)$", "", name) for name in histogram
    }
