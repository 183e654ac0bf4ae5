"""A worker's beginning: once the one before is gone, its containers are served again, before anything else is done."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from native_sched.daemon import contexts, inventory, node_config, recovery, worker_lock
from native_sched.daemon.card_policies import CardPolicies
from native_sched.daemon.engine import NO_INSTANCE, Card, Engine, SchedConfig, open_engine
from native_sched.daemon.grant_store import GrantStore
from native_sched.daemon.grants import Grants
from native_sched.daemon.holder_link import HolderLink
from native_sched.daemon.inventory import CardInfo
from native_sched.daemon.listeners import Listeners
from native_sched.daemon.log import LOG
from native_sched.daemon.node_config import NodeConfig
from native_sched.daemon.node_state import NodeState
from native_sched.daemon.recovery import Recovered
from native_sched.daemon.scheduling import Scheduling
from oci_specs import paths


@dataclass(frozen=True, kw_only=True)
class Worker:
    """A worker that serves the containers of the one before. rm_table_override: the driver's version that it is taken
    for, None where it is its own."""

    root: str
    driver: str
    driver_version: str
    rm_table_override: str | None
    config: NodeConfig
    cards: list[CardInfo]
    link: HolderLink
    engine: Engine
    grants: Grants
    policies: CardPolicies
    scheduling: Scheduling
    listeners: Listeners
    store: GrantStore
    node: NodeState
    recovered: Recovered
    end_with: int | None

    def path(self, *names: str) -> str:
        return os.path.join(self.root, *names)


def _config(root: str, path: str | None, known_good: str) -> tuple[NodeConfig, str]:
    chosen = path or os.path.join(root, "node.toml")
    if path or os.path.exists(chosen):
        return node_config.load_known(chosen, known_good)
    return NodeConfig(), ""


def _cards(driver: str, root: str) -> tuple[str, list[CardInfo]]:
    return inventory.simulated(os.path.join(root, "sim")) if driver == "sim" else inventory.nvml()


def _journal(root: str) -> str | None:
    """The journal's folder. None only where tests/bench measures what it costs: a container then outlives no mgpud."""
    if os.environ.get("MGPUD_WITHOUT_JOURNAL"):
        LOG.warning("no-journal", risk="containers lose their GPU when this mgpud ends")
        return None
    folder = os.path.join(root, "journal")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    return folder


def _engine(stack: ExitStack, driver: str, root: str, version: str) -> Engine:
    journal = _journal(root)
    return stack.enter_context(
        open_engine(paths.lib("libmgpu_engine.so"), driver, os.path.join(root, "sim"), version, journal)
    )


def _set_up(engine: Engine, cards: Sequence[CardInfo], config: NodeConfig) -> None:
    for card in cards:
        engine.add_card(
            Card(
                index=card.index,
                minor=card.minor,
                gpu_id=card.gpu_id,
                device_instance=card.index,
                gpu_instance=card.instance[0] if card.instance else NO_INSTANCE,
                compute_instance=card.instance[1] if card.instance else NO_INSTANCE,
                memory_bytes=card.memory_mib << 20,
                context_bytes=card.context_bytes,
                copy_context_bytes=card.copy_context_bytes,
            )
        )
    engine.configure(
        SchedConfig(
            hold_ns=config.hold_ms * 1_000_000,
            poll_fast_ns=config.poll_fast_us * 1_000,
            poll_slow_ns=config.poll_slow_us * 1_000,
            quiet_ns=config.quiet_ms * 1_000_000,
            off=not config.schedule,
        )
    )


def begin(stack: ExitStack, arguments: argparse.Namespace) -> Worker:
    """Serves what the worker before served, once that one is gone."""
    root = os.path.abspath(arguments.root)
    state = os.path.join(root, "node-state.json")
    # Whatever there is to refuse is refused before the worker that serves is ended.
    config, config_crc32 = _config(root, arguments.node_config, NodeState(state).now.config_crc32)
    version, cards = _cards(arguments.driver, root)
    link = HolderLink(os.path.join(root, "holder.sock"), take_over=arguments.take_over)
    stack.callback(link.close)
    stack.enter_context(worker_lock.held(os.path.join(root, "worker.lock"), fence=link.fence))
    # From here on nobody else writes what the worker before has left.
    node = NodeState(state)
    node.note(generation=node.now.generation + 1)
    override = arguments.rm_table or config.driver_table or None
    if override:
        LOG.warning(
            "driver-table-overridden", driver_version=version, taken_for=override, risk="caps may not hold"
        )
    engine = _engine(stack, arguments.driver, root, override or version)
    if arguments.driver == "nvidia":
        cards, measured = contexts.of_cards(engine, cards, config, node.now.contexts)
        if measured != node.now.contexts:
            node.note(contexts=measured)
    _set_up(engine, cards, config)
    store = GrantStore(os.path.join(root, "grants"))
    found = store.load()
    grants = Grants(node.now.last_tenant)
    policies = CardPolicies(grants, node.now.policies)
    scheduling = Scheduling(engine, grants, policies)
    listeners = Listeners(engine, grants, link, found.unreadable)
    recovered = recovery.take_over(
        engine, grants, scheduling, listeners, found, lambda each: link.read_all(each.take)
    )
    if config_crc32 != node.now.config_crc32:
        node.note(config_crc32=config_crc32)
    return Worker(
        root=root,
        driver=arguments.driver,
        driver_version=version,
        rm_table_override=override,
        config=config,
        cards=cards,
        link=link,
        engine=engine,
        grants=grants,
        policies=policies,
        scheduling=scheduling,
        listeners=listeners,
        store=store,
        node=node,
        recovered=recovered,
        end_with=arguments.end_with,
    )
