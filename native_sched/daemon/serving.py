"""What mgpud does besides answering containers' calls: the control socket, their lives, metrics. Everything here runs
in one event loop, and all of it takes a while to load."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import ExitStack, suppress
from typing import Any

from native_sched.daemon import hurry, inventory, metrics_service
from native_sched.daemon.admission import Admission
from native_sched.daemon.arbiter import Arbiter, Node
from native_sched.daemon.card_watch import LostCards
from native_sched.daemon.containerd_link import ContainerdLink
from native_sched.daemon.edits import edits_from_cdi
from native_sched.daemon.freezer_watch import FreezerWatch
from native_sched.daemon.health import Watchdog, with_threads
from native_sched.daemon.heartbeat import Heartbeat, end_with, with_holder
from native_sched.daemon.lifecycle import Lifecycle
from native_sched.daemon.log import LOG
from native_sched.daemon.metrics_account import Account
from native_sched.daemon.metrics_refused import Refusals
from native_sched.daemon.metrics_service import Observed
from native_sched.daemon.pause import pauser
from native_sched.daemon.prepare import Prepare
from native_sched.daemon.server import Server
from native_sched.daemon.without import Told
from native_sched.daemon.worker import Worker
from oci_specs import schemas

# How long those who waited for the control socket have to be answered.
HURRY_S = 1.0
_CDI_KINDS = {"sim": "sim.mgpu.dev/gpu", "nvidia": "nvidia.com/gpu"}


def run(stack: ExitStack, worker: Worker, nice: int) -> int:
    """Until SIGTERM, or until mgpud can no longer serve; the exit status. nice: what hurry.begin() returned."""
    return asyncio.run(_serve(stack, worker, nice))


def _lost_cards(worker: Worker) -> set[int]:
    if worker.driver == "sim":
        return inventory.lost_simulated(worker.path("sim"))
    return inventory.lost_nvml(worker.cards)


async def _serve(stack: ExitStack, worker: Worker, nice: int) -> int:
    loop = asyncio.get_running_loop()
    stopped = loop.create_future()

    def stop(status: int) -> None:
        if not stopped.done():
            stopped.set_result(status)

    if worker.end_with is not None:
        end_with(loop, worker.end_with, lambda: stop(1))
    loop.set_exception_handler(lambda _loop, context: LOG.unexpected(context))
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, 0)
    engine, grants, link, config = worker.engine, worker.grants, worker.link, worker.config
    lifecycle = Lifecycle(engine, grants, worker.scheduling, loop, worker.store, worker.node)
    account = Account(engine)
    lifecycle.before_end = account.look
    from_holder = loop.create_task(link.serve(worker.listeners.take))
    told = Told(engine, worker.cards)

    def event() -> None:
        lifecycle.something_ended()
        told.look()

    told.look()
    loop.add_reader(engine.event_fd, event)
    lifecycle.resume_all(worker.listeners)

    lost = LostCards()
    node = Node(
        driver=worker.driver,
        driver_version=worker.driver_version,
        rm_table_override=worker.rm_table_override,
        cards=tuple(worker.cards),
        listener_path=worker.path("seccomp.sock"),
        socket=worker.path("mgpud.sock"),
        config=config,
        recovered=worker.recovered,
        lost=lost,
    )
    edits_for = edits_from_cdi(
        _CDI_KINDS[worker.driver], [worker.path("cdi"), *config.cdi_dirs], worker.cards
    )
    admission = Admission(worker.cards, grants, worker.policies, config, edits_for, lost.indices)
    arbiter = Arbiter(
        node,
        engine,
        grants,
        worker.policies,
        worker.scheduling,
        admission,
        lifecycle,
        worker.store,
        worker.node,
    )
    watchdog = Watchdog(engine, loop, lambda: account.tick(grants))
    refusals = Refusals()
    verbs = arbiter.verbs()
    verbs["admit"] = refusals.counted(with_holder(verbs["admit"], lambda: link.connected))
    verbs["health"] = with_threads(verbs["health"], watchdog)

    def validate(message: dict[str, Any]) -> None:
        schemas.validate("control", message)

    prepare = Prepare(verbs["admit"], verbs["release"], validate, node.socket)
    server = Server(node.socket, verbs, validate, {"prepare": prepare.converse})
    stack.callback(server.close)
    server.listen()
    serving = loop.create_task(server.serve())
    freezers = FreezerWatch(grants, pauser(engine, worker.store.note))
    stack.callback(freezers.close)
    containerd = ContainerdLink(config.containerd, grants, freezers.hint)
    besides = [
        loop.create_task(each)
        for each in (freezers.run(), containerd.run(), lost.run(lambda: _lost_cards(worker), grants))
    ]
    besides.append(from_holder)
    for task in (serving, *besides):
        task.add_done_callback(lambda _task: stop(1))
    loop.call_later(HURRY_S, hurry.end, nice)
    print("ready", flush=True)
    LOG.info(
        "serving",
        driver=worker.driver,
        driver_version=worker.driver_version,
        cards=len(worker.cards),
        pid=os.getpid(),
        generation=worker.node.now.generation,
    )
    watchdog.start()
    stack.callback(watchdog.stop)
    besides.append(loop.create_task(Heartbeat(watchdog, link).run()))
    besides[-1].add_done_callback(LOG.ended)

    observed = Observed(
        engine=engine,
        grants=grants,
        policies=worker.policies,
        cards=worker.cards,
        account=account,
        watchdog=watchdog,
        refusals=refusals,
        driver=worker.driver,
        driver_version=worker.driver_version,
        generation=worker.node.now.generation,
        recovered=worker.recovered,
        lost=lost,
    )
    metrics_socket = worker.path("metrics.sock")
    metrics = loop.create_task(metrics_service.start(observed, metrics_socket, config.metrics_listen))
    metrics.add_done_callback(LOG.ended)
    status = int(await stopped)
    LOG.info("stopped", status=status)
    metrics.cancel()
    for task in (serving, *besides):
        task.cancel()
    await asyncio.gather(*besides, return_exceptions=True)
    for path in (node.socket, metrics_socket):
        with suppress(OSError):
            os.unlink(path)
    return status
