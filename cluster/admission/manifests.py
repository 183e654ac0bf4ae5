"""The committed manifests, written anew by `python -m cluster.admission.manifests`; a test compares them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click
import yaml

from cluster.admission import policies, webhooks
from cluster.admission.names import SCHEDULER, Settings
from cluster.admission.shapes import SHAPES

FOLDER = Path(__file__).resolve().parents[1] / "manifests" / "admission"
_HEAD = "# Written by python -m cluster.admission.manifests, from cluster/admission.\n"
_WIDE_CHARS = 60


class _Dumper(yaml.SafeDumper):
    """Long texts as blocks, each member of a list below its key."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, indentless=False)

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    style = "|" if "\n" in value or len(value) > _WIDE_CHARS else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


def document(objects: Iterable[Any]) -> str:
    return _HEAD + yaml.dump_all(
        objects, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10**6, explicit_start=True
    )


def files(settings: Settings) -> dict[str, str]:
    """Every manifest by its file's name.

    A cluster takes mutating-v1.yaml (1.36) or mutating-v1beta1.yaml (1.34, behind a gate) with all of
    validating-*.yaml, or webhook.yaml alone.
    """
    return {
        **{
            f"mutating-{version}.yaml": document(policies.mutating(settings, version))
            for version in policies.VERSIONS
        },
        **{f"validating-{shape.name}.yaml": document(policies.denying(settings, shape)) for shape in SHAPES},
        "validating-warnings.yaml": document(policies.warning(settings)),
        "webhook.yaml": document(webhooks.objects(settings)),
    }


@click.command()
@click.option("--scheduler", default=SCHEDULER, show_default=True, help="Who places pods by card.")
@click.option("--hami", is_flag=True, help="HAMi's resources nvidia.com/gpumem, gpucores are ours.")
@click.option("--aliyun-mib", is_flag=True, help="aliyun.com/gpu-mem is in MiB on all nodes.")
@click.option("--folder", type=click.Path(path_type=Path), default=FOLDER, help="Where to write them.")
def main(scheduler: str, hami: bool, aliyun_mib: bool, folder: Path) -> None:
    """Writes the manifests of admission."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files(Settings(scheduler=scheduler, hami=hami, aliyun_mib=aliyun_mib)).items():
        (folder / name).write_text(content)


if __name__ == "__main__":
    main()
