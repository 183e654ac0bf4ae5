"""`mgpu-move`: nodes of a cluster from HAMi to mgpu, one by one, and back."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

import click

from cluster.api.client import Client
from cluster.api.errors import ApiProblem
from cluster.move import plan as plans
from cluster.move import steps
from cluster.move.steps import Step
from oci_specs.refusal import Refusal

T = TypeVar("T")

_node = click.argument("node")
_force = click.option("--force", is_flag=True, help="Evict pods that no controller makes anew, too.")
_wait = click.option("--wait-seconds", default=600.0, show_default=True, help="How long a step may wait.")


@click.group()
@click.option("--kubeconfig", default=None, help="Without it: $KUBECONFIG, or ~/.kube/config.")
@click.option("--label", default="=".join(steps.HAMIS_LABEL), show_default=True, help="Of HAMi's nodes.")
@click.pass_context
def main(context: click.Context, kubeconfig: str | None, label: str) -> None:
    """Move a cluster's nodes from HAMi to mgpu, or back; docs/hami.md."""
    key, is_pair, value = label.partition("=")
    if not (key and is_pair and value):
        raise click.UsageError(f"--label {label} is no KEY=VALUE")
    context.obj = (kubeconfig, (key, value))


@main.command()
@click.pass_obj
def plan(chosen: tuple[str | None, tuple[str, str]]) -> None:
    """Say whose each node is, what moving it does, and which pods would be refused. Changes nothing."""
    kubeconfig, label = chosen

    async def work() -> list[str]:
        async with Client(kubeconfig) as api:
            return await plans.lines(api, label)

    for line in _done(work()):
        click.echo(line)


@main.command()
@_node
@_force
@_wait
@click.pass_obj
def over(chosen: tuple[str | None, tuple[str, str]], node: str, force: bool, wait_seconds: float) -> None:
    """Move NODE from HAMi to mgpu."""
    kubeconfig, label = chosen
    _run(kubeconfig, node, steps.over(label, force=force), wait_seconds)


@main.command()
@_node
@_force
@_wait
@click.pass_obj
def back(chosen: tuple[str | None, tuple[str, str]], node: str, force: bool, wait_seconds: float) -> None:
    """Move NODE from mgpu to HAMi."""
    kubeconfig, label = chosen
    _run(kubeconfig, node, steps.back(label, force=force), wait_seconds)


def _run(kubeconfig: str | None, node: str, doing: Sequence[Step], wait_s: float) -> None:
    async def work() -> None:
        async with Client(kubeconfig) as api:
            await steps.run(api, node, doing, click.echo, wait_s)

    _done(work())
    click.echo(f"node {node} is moved")


def _done(work: Coroutine[Any, Any, T]) -> T:
    """Its result; what the API server or a step refuses ends the command in one line."""
    try:
        return asyncio.run(work)
    except ApiProblem as problem:
        raise click.ClickException(str(problem)) from problem
    except Refusal as refusal:
        raise click.ClickException(f"{refusal.message}; {refusal.hint}") from refusal


if __name__ == "__main__":
    main()
