"""`mgpu-scheduler`: the extender of a kube-scheduler that places pods by card."""

import asyncio
import socket
import time
import uuid
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import get_args

import click
from aiohttp import web

from cluster.api.client import Api, Client
from cluster.api.errors import ApiProblem
from cluster.api.follow import Change, Listed, follow
from cluster.api.kinds import NODE, POD, Kind
from cluster.process.conditions import Conditions, to_stderr
from cluster.process.until_stopped import until_stopped
from cluster.scheduler.binding import Binder
from cluster.scheduler.counters import Counters
from cluster.scheduler.evictions import Evictions
from cluster.scheduler.extender import Extender
from cluster.scheduler.gangs import DOMAINS, TOGETHER_S, Gangs
from cluster.scheduler.lease import Lease
from cluster.scheduler.reservations import Reservations
from cluster.scheduler.scheduler import Scheduler, Scoring
from cluster.scheduler.server import add_health, protocol
from cluster.scheduler.starts import ANSWER_S, Starts
from cluster.scheduler.state import State
from cluster.scheduler.together import Together


@dataclass(frozen=True, kw_only=True)
class Options:
    """listen, healthz: HOST:PORT; health is served at both. namespace: where the lease is. answer_s: how long
    kubelet has to answer for a pod before the next one is sent to the node. gang_domains, gang_s: gangs.py.
    """

    listen: str
    healthz: str | None
    namespace: str
    score: Scoring
    reserve_after_s: float
    reserve_for_s: float
    answer_s: float = ANSWER_S
    gang_domains: Sequence[str] = DOMAINS
    gang_s: float = TOGETHER_S


@click.command()
@click.option("--listen", default="127.0.0.1:8900", metavar="HOST:PORT", show_default=True)
@click.option("--healthz", default=None, metavar="HOST:PORT", help="Where probes and Prometheus may ask.")
@click.option("--kubeconfig", default=None, help="Without it: $KUBECONFIG, or the pod's service account.")
@click.option("--namespace", default="mgpu-system", help="Of the lease.", show_default=True)
@click.option("--score", type=click.Choice(get_args(Scoring)), default="fgd", show_default=True)
@click.option("--reserve-after-seconds", type=click.FloatRange(min=0), default=60.0, show_default=True)
@click.option("--reserve-for-seconds", type=click.FloatRange(min=1), default=600.0, show_default=True)
@click.option("--gang-domain", multiple=True, default=DOMAINS, metavar="LABEL", help="Nearest first.")
@click.option("--gang-seconds", type=click.FloatRange(min=1, max=15), default=TOGETHER_S, show_default=True)
def main(
    listen: str,
    healthz: str | None,
    kubeconfig: str | None,
    namespace: str,
    score: Scoring,
    reserve_after_seconds: float,
    reserve_for_seconds: float,
    gang_domain: tuple[str, ...],
    gang_seconds: float,
) -> None:
    """Places pods on single GPUs: an extender of kube-scheduler."""
    options = Options(
        listen=listen,
        healthz=healthz,
        namespace=namespace,
        score=score,
        reserve_after_s=reserve_after_seconds,
        reserve_for_s=reserve_for_seconds,
        gang_domains=gang_domain,
        gang_s=gang_seconds,
    )
    try:
        asyncio.run(_main(kubeconfig, options))
    except (ApiProblem, OSError) as error:
        raise click.ClickException(str(error)) from error


async def _main(kubeconfig: str | None, options: Options) -> None:
    async with Client(kubeconfig) as api:
        await serve(api, options)


async def serve(api: Api, options: Options, started: Callable[[int], None] = lambda port: None) -> None:
    """Until SIGTERM or SIGINT, or until a part of it fails, whose error is raised. started: hears
    the port.
    """
    conditions = Conditions(to_stderr("mgpu-scheduler"))
    clock = time.monotonic
    scheduler = Scheduler(options.score)
    reservations = Reservations(
        scheduler, reserve_after_s=options.reserve_after_s, reserve_for_s=options.reserve_for_s
    )
    gangs = Gangs(scheduler, domains=options.gang_domains, together_s=options.gang_s)
    state = State(scheduler, reservations, gangs, Starts(clock, options.answer_s), conditions)
    together = Together(state, api, clock)
    counters = Counters()

    async def list_anew() -> None:
        pods, _ = await api.list(POD)
        state.change_pods(Listed(pods), clock())
        await together.resume()

    holder = f"{socket.gethostname()}_{uuid.uuid4()}"
    lease = Lease(api, options.namespace, holder, clock, list_anew)
    extender = Extender(
        state,
        together,
        Binder(state, api, conditions, clock, counters.written.observe),
        Evictions(state, api, conditions, clock, counters.evictions.inc, holder),
        lease,
        counters,
        clock,
    )
    apps = {options.listen: protocol(extender, counters)}
    if options.healthz:
        apps[options.healthz] = web.Application()
    async with AsyncExitStack() as stack:
        ports = []
        for address, app in apps.items():
            add_health(app, state, counters, conditions)
            ports.append(await stack.enter_async_context(_served(app, address)))
        started(ports[0])
        await until_stopped(
            lease.run(),
            _follow(api, NODE, conditions, state.change_nodes),
            _follow(api, POD, conditions, lambda change: state.change_pods(change, clock())),
        )


@asynccontextmanager
async def _served(app: web.Application, address: str) -> AsyncGenerator[int]:
    """Its port. OSError when the address is taken."""
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    host, _, port = address.rpartition(":")
    try:
        await web.TCPSite(runner, host or None, int(port)).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


async def _follow(api: Api, kind: Kind, conditions: Conditions, changed: Callable[[Change], None]) -> None:
    async for change in follow(api, kind, tell=lambda line: conditions.set(kind.plural, line)):
        changed(change)


if __name__ == "__main__":
    main()
