"""What mgpud does besides answering containers' calls: the control socket, their lives, metrics. Everything
here runs in one event loop, and all of it takes a while to load.
"""

import asyncio
import os
import signal
import sys
import time
import traceback
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NoReturn

from native_sched.daemon.control.arbiter import Arbiter, Node
from native_sched.daemon.control.container_events import ContainerEvents
from native_sched.daemon.control.health import Watchdog, with_threads
from native_sched.daemon.control.heartbeat import Heartbeat, end_with, with_holder
from native_sched.daemon.control.lifecycle import Lifecycle
from native_sched.daemon.control.prepare import Prepare
from native_sched.daemon.control.server import Peer, Server
from native_sched.daemon.control.starts import Starts
from native_sched.daemon.control.tables import tables, with_tables
from native_sched.daemon.grants.admission import Admission
from native_sched.daemon.grants.card_watch import CardWatch
from native_sched.daemon.grants.claims import Claims
from native_sched.daemon.grants.edits import edits_from_cdi
from native_sched.daemon.grants.freezer_watch import FreezerWatch
from native_sched.daemon.grants.pause import pauser
from native_sched.daemon.links.lost_listeners import LostListeners
from native_sched.daemon.links.watch import WatchLink
from native_sched.daemon.log import LOG
from native_sched.daemon.metrics import engine_names
from native_sched.daemon.metrics import service as metrics_service
from native_sched.daemon.metrics.account import Account
from native_sched.daemon.metrics.refused import Refusals
from native_sched.daemon.metrics.service import Observed
from native_sched.daemon.mgpud import Mgpud
from native_sched.daemon.node import boost
from native_sched.daemon.node.without import Told
from native_sched.daemon.reclaim.reclaim import Reclaimer
from oci_specs import schemas
from oci_specs.refusal import Refusal
from runtime_hook.needs import CDI_KINDS, Place

# How long connections that waited for the control socket may take to be answered.
BOOST_S = 1.0
# How often the simulated cards' CDI spec is looked for.
DESCRIBED_S = 5.0
# The least time between two looks at what the engine tells.
EVENT_LEAST_S = 0.01


def run(mgpud: Mgpud, nice: int) -> NoReturn:
    """Serves until SIGTERM or failure, and ends the process. nice: what boost.begin() returned.

    Its engine is not closed: that would answer calls by an error. After a kill the next mgpud takes them up.
    """
    asyncio.run(_whole(mgpud, nice))
    raise AssertionError("the process has ended")


async def _whole(mgpud: Mgpud, nice: int) -> NoReturn:
    status = 1
    try:
        with ExitStack() as stack:
            status = await _serve(stack, mgpud, nice)
    except Refusal as refusal:
        print(refusal.line(), file=sys.stderr)
    except OSError as error:
        print(f"mgpud: {error.filename or mgpud.root}: {error.strerror or error}", file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        # This works on a full disk, too, and waits for nothing.
        os._exit(status)


def _describe_simulated(mgpud: Mgpud) -> None:
    """Real cards have the CDI specs that NVIDIA's tools write."""
    if mgpud.driver == "sim":
        from sim import cdi

        folder = Path(mgpud.path("cdi"))
        try:
            folder.mkdir(exist_ok=True)
            cdi.write(folder, Path(mgpud.path("sim", "admin.sock")))
        except (OSError, Refusal) as error:
            # Containers that run are served all the same.
            LOG.warning(
                "cdi-not-written", why=error.message if isinstance(error, Refusal) else error.strerror
            )


async def _keep_described(mgpud: Mgpud) -> None:
    """What somebody has removed is written anew, and what a full disk had no room for."""
    from sim import cdi

    while True:
        await asyncio.sleep(DESCRIBED_S)
        if not os.path.exists(mgpud.path("cdi", cdi.FILE_NAME)):
            _describe_simulated(mgpud)


async def _serve(stack: ExitStack, mgpud: Mgpud, nice: int) -> int:
    loop = asyncio.get_running_loop()
    stopped = loop.create_future()

    def stop(status: int) -> None:
        if not stopped.done():
            stopped.set_result(status)

    if mgpud.end_with is not None:
        end_with(loop, mgpud.end_with, lambda: stop(1))
    loop.set_exception_handler(lambda _loop, context: LOG.unexpected(context))
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, 0)
    served, link = mgpud.served, mgpud.link
    cards, config, engine, grants = served.cards, served.config, served.engine, served.grants
    lifecycle = Lifecycle(served, loop)
    stack.callback(lifecycle.close)
    account = Account(engine)
    lifecycle.before_end = account.look
    from_holder = loop.create_task(link.serve(mgpud.listeners.take))
    told = Told(engine, cards)

    reclaimer = Reclaimer(served, mgpud.driver, mgpud.path("checkpoint.lock"), lifecycle.kill)
    stack.callback(reclaimer.close)

    def event() -> None:
        # A container can cause as many as it likes.
        loop.remove_reader(engine.event_fd)
        loop.call_later(EVENT_LEAST_S, loop.add_reader, engine.event_fd, event)
        lifecycle.something_ended()
        told.look()
        reclaimer.wake()

    told.look()
    loop.add_reader(engine.event_fd, event)
    lifecycle.resume_all(mgpud.listeners)

    _describe_simulated(mgpud)
    watched = CardWatch(
        served,
        mgpud.driver_version,
        mgpud.found_cards,
        mgpud.add_card,
        changed=lambda: _describe_simulated(mgpud),
        renewed=lambda: stop(0),
    )
    node = Node(
        driver=mgpud.driver,
        driver_version=mgpud.driver_version,
        rm_table_override=mgpud.rm_table_override,
        listener_path=mgpud.path("seccomp.sock"),
        socket=mgpud.path("mgpud.sock"),
        recovered=mgpud.recovered,
        closed=watched.closed,
        drain=watched.drain,
    )
    edits_for = edits_from_cdi(CDI_KINDS[mgpud.driver], [mgpud.path("cdi"), *config.cdi_dirs], cards)
    claims = Claims(mgpud.path("claims"), grants)
    admission = Admission(served, edits_for, claims, watched.closed, mgpud.driver_version)
    arbiter = Arbiter(node, served, admission, lifecycle, reclaimer)
    watchdog = Watchdog(engine, loop, lambda: account.tick(grants))
    refusals = Refusals()
    verbs = arbiter.verbs()
    verbs["admit"] = refusals.counted(with_holder(verbs["admit"], lambda: link.connected, lambda: link.held))
    verbs["health"] = with_threads(verbs["health"], watchdog)
    verbs["health"] = with_tables(verbs["health"], lambda: tables(served, link.held, mgpud.root))
    with_all = verbs["health"]

    def place() -> Place:
        told = with_all({}, Peer(os.getpid(), 0))
        folders = [mgpud.path("cdi"), *config.cdi_dirs]
        return Place(state=Path(mgpud.root), health=told, cdi_folders=folders)

    starts = Starts(place)
    for verb in ("health", "inventory"):
        verbs[verb] = starts.told_by(verbs[verb])
    container_events = ContainerEvents(time.time_ns() // 1000, grants)
    LOG.heard = container_events.note
    verbs["watch"] = lambda message, _peer: container_events.since(message["since"])

    def validate(message: dict[str, Any]) -> None:
        schemas.validate("control", message)

    def exiting() -> bool:
        return any(grant.state == "draining" for grant in grants)

    prepare = Prepare(verbs["admit"], verbs["release"], validate, node.socket, exiting)
    server = Server(node.socket, verbs, validate, {"prepare": prepare.converse})
    stack.callback(server.close)
    server.listen()
    serving = loop.create_task(server.serve())
    freezers = FreezerWatch(grants, pauser(engine, served.store.note))
    stack.callback(freezers.close)
    watch = WatchLink(config.containerd, grants, freezers.hint, watched.hint)
    listeners = LostListeners(grants, link.answers, lifecycle.kill, end=config.lost_listener == "end")
    besides = [
        loop.create_task(each)
        for each in (
            freezers.run(),
            watch.run(),
            watched.run(),
            listeners.run(),
        )
    ]
    besides.append(from_holder)
    if mgpud.driver == "sim":
        besides.append(loop.create_task(_keep_described(mgpud)))
    for task in (serving, *besides):
        task.add_done_callback(lambda _task: stop(1))
    loop.call_later(BOOST_S, boost.end, nice)
    with suppress(OSError):  # a full disk
        print("ready", flush=True)
    LOG.info(
        "serving",
        driver=mgpud.driver,
        driver_version=mgpud.driver_version,
        cards=len(cards),
        pid=os.getpid(),
        generation=served.node.now.generation,
    )
    reclaiming = loop.create_task(reclaimer.run())
    reclaiming.add_done_callback(LOG.ended)
    besides.append(reclaiming)
    watchdog.start()
    stack.callback(watchdog.stop)
    besides.append(loop.create_task(Heartbeat(watchdog, link).run()))
    besides.append(loop.create_task(starts.run()))
    for task in besides[-2:]:
        task.add_done_callback(LOG.ended)

    observed = Observed(
        engine=engine,
        grants=grants,
        policies=served.policies,
        cards=cards,
        account=account,
        watchdog=watchdog,
        refusals=refusals,
        driver=mgpud.driver,
        driver_version=mgpud.driver_version,
        generation=served.node.now.generation,
        recovered=mgpud.recovered,
        closed=watched.closed,
        lost_listeners=lambda: listeners.found,
        moved=reclaimer.counts,
        missing=lambda: starts.missing,
    )
    besides.append(loop.create_task(engine_names.follow(grants, observed.engine_names)))
    besides[-1].add_done_callback(LOG.ended)
    metrics_socket = mgpud.path("metrics.sock")
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
