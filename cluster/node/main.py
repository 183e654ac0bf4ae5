"""`mgpu-node`: the node process, beside mgpud on each node of a cluster."""

import asyncio
import os
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import click

from cluster.api.errors import ApiProblem
from cluster.node import events, metrics, one_answer, published
from cluster.node.mgpud import Mgpud
from cluster.node.node import Node
from cluster.node.registration import Registration
from cluster.process.until_stopped import until_stopped


class Claims(NamedTuple):
    """How the GPUs are offered by claims. cdi: where the container engine looks for CDI specs."""

    cdi: Path


@click.command()
@click.option("--node-name", envvar="NODE_NAME", required=True, help="As the API server has it.")
@click.option("--root", type=click.Path(path_type=Path), default=Path("/run/mgpu"), help="mgpu's state.")
@click.option(
    "--kubelet", type=click.Path(path_type=Path), default=Path("/var/lib/kubelet"), help="kubelet's state."
)
@click.option("--kubeconfig", default=None, help="Without it: $KUBECONFIG, or the pod's service account.")
@click.option("--no-api", is_flag=True, help="Speak to kubelet alone.")
@click.option("--dra", is_flag=True, help="Offer the GPUs by claims (DRA) instead of resources.")
@click.option("--cdi", type=click.Path(path_type=Path), default=Path("/var/run/cdi"), help="For claims.")
@click.option("--withdraw", is_flag=True, help="Take all of it away from the API server, and end.")
@click.option("--hami", is_flag=True, help="Offer HAMi's resources, nvidia.com/gpu and others, too.")
@click.option("--healthz", "address", default=None, metavar="HOST:PORT", help="Where a probe may ask.")
@click.option(
    "--metrics", "scraped", default=None, metavar="HOST:PORT", help="Where Prometheus may ask for metrics."
)
@click.option(
    "--metrics-tls",
    type=click.Path(path_type=Path),
    default=None,
    help="A folder: tls.crt and tls.key for it.",
)
def main(
    node_name: str,
    root: Path,
    kubelet: Path,
    kubeconfig: str | None,
    no_api: bool,
    dra: bool,
    cdi: Path,
    withdraw: bool,
    hami: bool,
    address: str | None,
    scraped: str | None,
    metrics_tls: Path | None,
) -> None:
    """Offers this node's GPUs to kubelet, as mgpud shares them, and to the API server."""
    # gRPC's own library would add its own lines to ours.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    for option, given in (("--healthz", address), ("--metrics", scraped)):
        if given and not given.rpartition(":")[2].isdigit():
            raise click.UsageError(f"{option} {given} is no HOST:PORT")
    if dra and no_api:
        raise click.UsageError("--dra needs the API server: leave --no-api out")
    node = Node(
        name=node_name, mgpud=Mgpud(root / "mgpud.sock"), kubelet=kubelet, opt_in=hami, by_claims=dra
    )
    claims = Claims(cdi) if dra else None
    served = metrics.run(scraped, root / "metrics.sock", metrics_tls) if scraped and not withdraw else None
    try:
        if withdraw:
            from cluster.node import withdrawn

            asyncio.run(withdrawn.run(node_name, kubeconfig))
            return
        asyncio.run(
            serve(
                node,
                kubeconfig=kubeconfig,
                with_api=not no_api,
                address=address,
                claims=claims,
                served=served,
            )
        )
    except (ApiProblem, OSError) as error:
        raise click.ClickException(str(error)) from error


async def serve(
    node: Node,
    *,
    kubeconfig: str | None,
    with_api: bool,
    address: str | None,
    claims: Claims | None = None,
    served: Coroutine[Any, Any, None] | None = None,
) -> None:
    """Until SIGTERM or SIGINT, or until a part of it fails, whose error is raised."""
    async with AsyncExitStack() as stack:
        parts: list[Coroutine[Any, Any, None]] = [node.follow()]
        if claims is None:
            parts.append(Registration(node).run())
        if address:
            parts.append(one_answer.health(address, node.conditions))
        if served is not None:
            parts.append(served)
        farewell = None
        if with_api:
            # What it loads is not needed without.
            from cluster.api.client import Client

            node.api = await stack.enter_async_context(Client(kubeconfig))
            farewell = partial(published.leave, node, node.api)
            parts += [published.run(node, node.api), events.run(node, node.api)]
            if claims is not None:
                from cluster.dra import run as dra

                parts.append(dra.run(node, claims.cdi))
        await until_stopped(*parts, farewell=farewell)
