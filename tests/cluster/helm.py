"""Helm's own library, from PyPI, in a process of its own: it brings a Go runtime with signal handlers."""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.support.places import REPOSITORY

CHART = REPOSITORY / "cluster" / "manifests" / "chart"
NAMESPACE = "mgpu-system"
Object = dict[str, Any]


class HelmRefused(Exception):
    """Helm's words for why it renders nothing."""


def rendered(values: Mapping[str, Any], *, namespace: str = NAMESPACE) -> list[Object]:
    """The objects that `helm template` makes of the chart. HelmRefused as there."""
    return documents(_helm({"does": "render", "values": values, "namespace": namespace}))


def proposed(values: Mapping[str, Any], kubeconfig: Mapping[str, Any], home: Path) -> list[Object]:
    """The objects that `helm install --dry-run=server` would create. HelmRefused as there."""
    asked = {"does": "propose", "values": values, "namespace": NAMESPACE, "kubeconfig": kubeconfig}
    return documents(_helm(asked, home=home))


def lint(values: Mapping[str, Any]) -> list[str]:
    """Every warning and error of `helm lint`."""
    told: list[Object] = json.loads(_helm({"does": "lint", "values": values, "namespace": NAMESPACE}))
    return [each["error"] for each in told if each["severity"] > 1]


def _helm(asked: Mapping[str, Any], home: Path | None = None) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "tests.cluster.helm"],
        input=json.dumps(asked),
        cwd=REPOSITORY,
        env={"HOME": str(home or "/nonexistent")},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    if done.returncode != 0:
        raise HelmRefused(done.stderr.strip().splitlines()[-1])
    return done.stdout


def documents(text: str) -> list[Object]:
    """By libyaml, ten times as quick."""
    return [each for each in yaml.load_all(text, Loader=yaml.CSafeLoader) if each]


def main(asked: Mapping[str, Any]) -> str:
    import helm_python

    values, namespace = asked["values"], asked["namespace"]
    if asked["does"] == "lint":
        found: Sequence[Object] = helm_python.lint(CHART, values, namespace=namespace)["messages"]
        return json.dumps(found)
    if asked["does"] == "render":
        with helm_python.Chart.load(CHART) as chart:
            chart.validate_schema(values)
            made = chart.render(values, name="mgpu", namespace=namespace)
        return "\n---\n".join(text for name, text in made.items() if name.endswith(".yaml"))
    with helm_python.Config(
        kubeconfig_content=json.dumps(asked["kubeconfig"]), namespace=namespace, storage_driver="memory"
    ) as config:
        release: Object = config.install(CHART, "mgpu", values, dry_run="server")
    return str(release["manifest"])


if __name__ == "__main__":
    print(main(json.load(sys.stdin)))
