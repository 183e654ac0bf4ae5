"""`mgpu explain`: what containers get of a GPU beside computing, by how they hold it."""

import json
from dataclasses import asdict

import click

from mgpu_cli import options, table
from oci_specs.features import FEATURES, Feature
from oci_specs.refusal import Refusal, quoted


def named(name: str) -> Feature:
    for feature in FEATURES:
        if feature.name == name.lower():
            return feature
    names = ", ".join(feature.name for feature in FEATURES)
    raise Refusal("no-such-feature", f"{quoted(name)} is no feature that is known", f"features: {names}")


@click.command(short_help="Show what shares and whole GPUs may do.")
@click.argument("feature", required=False)
@options.output
def explain(feature: str | None, output: str) -> None:
    """Show what a container gets of its GPUs beside computing: as a share, and where it holds them alone.

    FEATURE is one of those that it lists without. For a container that runs, mgpu describe says it.
    """
    one = named(feature) if feature else None
    if output == "json":
        click.echo(json.dumps([asdict(each) for each in ((one,) if one else FEATURES)], indent=2))
    elif one:
        click.echo(f"{one.name}: {one.what}")
        click.echo(f"a share: {one.told(alone=False)}")
        click.echo(f"whole GPUs: {one.told(alone=True)}")
    else:
        rows = [(each.name, _word(each.share), _word(each.whole), each.what) for each in FEATURES]
        click.echo(table.text([("FEATURE", "SHARE", "WHOLE GPUS", "WHAT"), *rows]), nl=False)


def _word(served: bool) -> str:
    return "yes" if served else "no"
