"""`mgpu-admission`: the webhook that the API server asks about pods and workloads."""

import asyncio
import ssl

import click

from cluster.admission import server
from cluster.admission.names import SCHEDULER, Settings
from cluster.admission.trust import Trust
from cluster.admission.webhooks import PORT
from cluster.api.client import Client
from cluster.api.errors import ApiProblem
from cluster.process.until_stopped import until_stopped


@click.command()
@click.option("--scheduler", default=SCHEDULER, show_default=True, help="Who places pods by GPU.")
@click.option("--hami", is_flag=True, help="HAMi's resources, nvidia.com/gpu and others, are ours.")
@click.option("--aliyun-mib", is_flag=True, help="aliyun.com/gpu-mem is in MiB on all nodes.")
@click.option("--host", default="", help="The address to listen on; all of them unless given.")
@click.option("--port", default=PORT, show_default=True)
@click.option("--kubeconfig", default=None, help="Without it: $KUBECONFIG, or the pod's service account.")
def main(scheduler: str, hami: bool, aliyun_mib: bool, host: str, port: int, kubeconfig: str | None) -> None:
    """Serves AdmissionReviews, with certificates of its own."""
    settings = Settings(scheduler=scheduler, hami=hami, aliyun_mib=aliyun_mib)
    try:
        asyncio.run(run(settings, host, port, kubeconfig))
    except (ApiProblem, OSError) as error:
        raise click.ClickException(str(error)) from error


async def run(settings: Settings, host: str, port: int, kubeconfig: str | None) -> None:
    """Until SIGTERM or SIGINT."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    async with Client(kubeconfig) as api:
        trust = Trust(api, lambda pair: server.load(context, pair))
        await until_stopped(server.serve(settings, trust, context, host or "0.0.0.0", port))
