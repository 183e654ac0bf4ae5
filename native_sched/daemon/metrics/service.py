"""Starts serving metrics once mgpud serves everything else."""

import asyncio
import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from native_sched.daemon.control.health import Watchdog
from native_sched.daemon.control.recovery import Recovered
from native_sched.daemon.engine import Engine
from native_sched.daemon.grants.card_policies import CardPolicies
from native_sched.daemon.grants.closed import Closed
from native_sched.daemon.grants.grants import Grants
from native_sched.daemon.log import LOG, Log
from native_sched.daemon.metrics.account import Account
from native_sched.daemon.metrics.refused import Refusals
from native_sched.daemon.metrics.server import MetricsServer
from native_sched.daemon.node.inventory import CardInfo
from native_sched.daemon.reclaim.counts import Counts
from runtime_hook.needs import Missing

RUNTIMES_FIRST_S = 0.5


@dataclass(frozen=True, kw_only=True)
class Observed:
    """Where the numbers come from; generation: how many mgpuds this node has had, with this one."""

    engine: Engine
    grants: Grants
    policies: CardPolicies
    cards: Sequence[CardInfo]
    account: Account
    watchdog: Watchdog
    refusals: Refusals
    driver: str
    driver_version: str
    # What Docker and podman call containers, by id.
    engine_names: dict[str, str] = field(default_factory=dict)
    generation: int = 0
    recovered: Recovered = field(default_factory=Recovered)
    closed: Closed = field(default_factory=Closed)
    # How many containers were found without a listener.
    lost_listeners: Callable[[], int] = lambda: 0
    moved: Counts = field(default_factory=Counts)
    missing: Callable[[], Sequence[Missing]] = tuple
    log: Log = LOG


async def serve(server: MetricsServer, path: str, listen: str, log: Log) -> None:
    """On the socket `path`, and on the port `listen` unless that is empty. What cannot be is logged:
    containers are served without metrics too.
    """
    for where, listening in ((path, server.listen_unix), (listen, server.listen_tcp)):
        try:
            if where:
                await listening(where)
        except (OSError, OverflowError) as error:
            log.error("metrics-not-served", where=where, why=error)


async def start(observed: Observed, path: str, listen: str) -> MetricsServer:
    """Loads what metrics need in another thread, since that takes as long as a scrape of a thousand
    containers, and serves them. Runtimes may have waited for a mgpud that follows another: they come first.
    """
    if observed.generation > 1:
        await asyncio.sleep(RUNTIMES_FIRST_S)
    metrics = await asyncio.to_thread(importlib.import_module, "native_sched.daemon.metrics.text")
    server = MetricsServer(metrics.renderer(observed), observed.log)
    await serve(server, path, listen, observed.log)
    return server
