"""The committed manifest, written anew by `python -m cluster.admission.manifests`; a test compares it."""

from pathlib import Path
from typing import Any

import click
import yaml

from cluster.admission import webhooks
from cluster.admission.names import SCHEDULER, Settings

PATH = Path(__file__).resolve().parents[1] / "manifests" / "admission.yaml"
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


def text(settings: Settings) -> str:
    return _HEAD + yaml.dump_all(
        webhooks.objects(settings),
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        width=10**6,
        explicit_start=True,
    )


@click.command()
@click.option("--scheduler", default=SCHEDULER, show_default=True, help="Who places pods by GPU.")
@click.option("--hami", is_flag=True, help="HAMi's resources, nvidia.com/gpu and others, are ours.")
@click.option("--aliyun-mib", is_flag=True, help="aliyun.com/gpu-mem is in MiB on all nodes.")
@click.option("--output", type=click.Path(path_type=Path), default=PATH, help="The file to write.")
def main(scheduler: str, hami: bool, aliyun_mib: bool, output: Path) -> None:
    """Writes the manifest of admission."""
    output.write_text(text(Settings(scheduler=scheduler, hami=hami, aliyun_mib=aliyun_mib)))


if __name__ == "__main__":
    main()
