"""The Grafana dashboard as data: its panels, and their expressions with the variables filled in."""

import json
from typing import Any

from tests.support.places import REPOSITORY

PATH = REPOSITORY / "cluster" / "manifests" / "chart" / "grafana" / "mgpu.json"
ALL = ".*"


def load() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(PATH.read_text())
    return found


def filled(expression: str, rate_interval: str = "1m") -> str:
    """As Grafana asks it when every variable is at "All"."""
    for variable in ("node", "card", "namespace"):
        expression = expression.replace(f"${variable}", ALL)
    return expression.replace("$__rate_interval", rate_interval)


def expressions(dashboard: dict[str, Any]) -> dict[str, str]:
    """By the panel's number and the query's letter."""
    return {
        f"p{panel['id']}{target['refId']}": target["expr"]
        for panel in dashboard["panels"]
        for target in panel["targets"]
    }
