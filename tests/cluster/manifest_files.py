"""The manifests, as they are read."""

from pathlib import Path
from typing import Any

import yaml

from tests.support.places import REPOSITORY

FOLDER = REPOSITORY / "cluster" / "manifests"
AGENT, NODE = FOLDER / "agent.yaml", FOLDER / "node.yaml"


def documents(path: Path) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


def pod_of(path: Path) -> dict[str, Any]:
    [found] = [each for each in documents(path) if each["kind"] == "DaemonSet"]
    spec: dict[str, Any] = found["spec"]["template"]["spec"]
    return spec
