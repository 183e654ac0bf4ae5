"""The chart's templates, written anew by `python -m cluster.chart`; a test compares them."""

from collections.abc import Mapping
from pathlib import Path

import click

from cluster.admission import manifests
from cluster.admission.names import DEFAULT_SCHEDULER, SCHEDULER, Settings
from cluster.chart import switches
from cluster.chart.edits import edited

PLAIN = Path(__file__).resolve().parents[1] / "manifests"
FOLDER = PLAIN / "chart"
_HEAD = "{{{{- /* Written by python -m cluster.chart, from cluster/manifests/{name}. */}}}}\n"
# When a manifest is there at all. The namespace is the installation's own.
_WHEN = {
    "scheduler.yaml": ".Values.scheduler.enabled",
    "claims/deviceclasses.yaml": ".Values.dra",
}
_ALWAYS = ("agent.yaml", "node.yaml", "node-scope.yaml", "uninstall.yaml", "runtimeclass.yaml")
# The settings by which admission's manifest differs.
_SWITCHES = {
    "hami": ".Values.hami",
    "aliyun_mib": ".Values.aliyunMib",
    "scheduler": ".Values.scheduler.enabled",
}


def templates() -> dict[str, str]:
    """Every generated template by its file's name. edits.Lost as there."""
    plain = [*_ALWAYS, "scheduler.yaml", "claims/deviceclasses.yaml"]
    made = {name: edited(name, (PLAIN / name).read_text()) for name in plain}
    made["admission.yaml"] = edited("admission.yaml", switches.template(_SWITCHES, _admission))
    return {
        name.replace("/", "-"): _HEAD.format(name=name) + _conditional(name, text)
        for name, text in made.items()
    }


def _admission(settings: Mapping[str, bool]) -> str:
    scheduler = SCHEDULER if settings["scheduler"] else DEFAULT_SCHEDULER
    return manifests.text(
        Settings(scheduler=scheduler, hami=settings["hami"], aliyun_mib=settings["aliyun_mib"])
    )


def _conditional(name: str, text: str) -> str:
    when = _WHEN.get(name)
    return text if when is None else f"{{{{- if {when} }}}}\n{text}{{{{- end }}}}\n"


@click.command()
@click.option("--folder", type=click.Path(path_type=Path), default=FOLDER, help="The chart.")
def main(folder: Path) -> None:
    """Writes the templates of the Helm chart from the plain manifests."""
    (folder / "templates").mkdir(parents=True, exist_ok=True)
    for name, content in templates().items():
        (folder / "templates" / name).write_text(content)
