"""The start of an mgpud: once the previous one has exited, its containers are served before all else."""

from __future__ import annotations

import argparse
import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from native_sched.daemon.control import recovery
from native_sched.daemon.control.recovery import Recovered
from native_sched.daemon.engine import Engine, open_engine
from native_sched.daemon.engine_abi import SchedConfig
from native_sched.daemon.grants.card_policies import CardPolicies
from native_sched.daemon.grants.grants import Grants
from native_sched.daemon.grants.scheduling import Scheduling
from native_sched.daemon.grants.served import Served
from native_sched.daemon.grants.store import GrantStore
from native_sched.daemon.links.holder import HolderLink
from native_sched.daemon.links.listeners import Listeners
from native_sched.daemon.log import LOG
from native_sched.daemon.node import config as node_config
from native_sched.daemon.node import contexts, inventory, mgpud_lock
from native_sched.daemon.node.config import NodeConfig
from native_sched.daemon.node.inventory import CardInfo, Found
from native_sched.daemon.node.state import NodeState
from oci_specs import paths

if TYPE_CHECKING:
    from native_sched.daemon.standby import Called


@dataclass(frozen=True, kw_only=True)
class Mgpud:
    """An mgpud that serves the containers of the previous one. rm_table_override: the driver's version that
    it is taken for, None where it is its own.
    """

    root: str
    driver: str
    driver_version: str
    rm_table_override: str | None
    served: Served
    link: HolderLink
    listeners: Listeners
    recovered: Recovered
    end_with: int | None

    def path(self, *names: str) -> str:
        return os.path.join(self.root, *names)

    def found_cards(self, without: Collection[int]) -> Found:
        return found_cards(self.driver, self.root, without)

    def add_card(self, card: CardInfo) -> tuple[CardInfo, dict[str, list[int]]]:
        """The card as the engine serves it from now on, and what was measured of it; OSError."""
        served, measured = self.served, dict[str, list[int]]()
        if self.driver == "nvidia":
            [card], measured = contexts.of_cards(
                served.engine, [card], served.config, served.node.now.contexts
            )
        inventory.see_compute_mode(card)
        inventory.add_to(served.engine, card)
        return card, measured


def _config(root: str, path: str | None, known_good: str) -> tuple[NodeConfig, str]:
    chosen = path or os.path.join(root, "node.toml")
    if path or os.path.exists(chosen):
        return node_config.load_known(chosen, known_good)
    return NodeConfig(), ""


def found_cards(driver: str, root: str, without: Collection[int]) -> Found:
    """The cards that the driver has now; Refusal. without: gpu_ids of GPUs that must not be opened."""
    return inventory.simulated(os.path.join(root, "sim")) if driver == "sim" else inventory.nvml(without)


def _with_drained(
    driver: str, root: str, records: Mapping[str, Mapping[str, Any]]
) -> tuple[str, list[CardInfo]]:
    """The driver's version and the node's cards. Drained ones are as they were: they may be reset by now."""
    drained = [inventory.recorded(record) for record in records.values()]
    version, cards, _ = found_cards(driver, root, {card.gpu_id for card in drained})
    return version, [*drained, *(card for card in cards if card.uuid not in records)]


def _journal(root: str) -> str | None:
    """The journal's folder; None only in tests/bench: a container then outlives no mgpud."""
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


def _set_up(engine: Engine, cards: Sequence[CardInfo], alone: Collection[str], config: NodeConfig) -> None:
    for card in cards:
        if card.uuid not in alone:
            inventory.see_compute_mode(card)
        inventory.add_to(engine, card, released=card.uuid in alone)
    engine.configure(
        SchedConfig(
            hold_ns=config.hold_ms * 1_000_000,
            poll_fast_ns=config.poll_fast_us * 1_000,
            poll_slow_ns=config.poll_slow_us * 1_000,
            quiet_ns=config.quiet_ms * 1_000_000,
            off=not config.schedule,
        )
    )


def _tell_guard(engine: Engine) -> None:
    """Where the kernel has no such thing, `mgpu doctor` says so."""
    try:
        if engine.guarded:
            LOG.info("files-guarded", received="where a grant is")
    except OSError as error:
        LOG.error("files-unguarded", why=error.strerror, risk="a process without a grant can receive files")


def begin(stack: ExitStack, arguments: argparse.Namespace, called: Called | None) -> Mgpud:
    """Serves what the previous mgpud served, once that has exited. called: None without a standby."""
    stages = recovery.Stages(called)
    root = os.path.abspath(arguments.root)
    state = os.path.join(root, "node-state.json")
    # Every refusal comes before the serving mgpud is ended.
    before = NodeState(state).now
    config, config_crc32 = _config(root, arguments.node_config, before.config_crc32)
    version, cards = _with_drained(arguments.driver, root, before.drained)
    link = HolderLink(os.path.join(root, "holder.sock"), take_over=arguments.take_over)
    stack.callback(link.close)
    stack.enter_context(mgpud_lock.held(os.path.join(root, "mgpud.lock"), fence=link.fence))
    stages.end("alone")
    # From here on no other process writes the state that the previous mgpud has left.
    node = NodeState(state, first=False)
    node.note(generation=node.now.generation + 1)
    override = arguments.rm_table or config.driver_table or None
    if override:
        LOG.warning(
            "driver-table-overridden", driver_version=version, taken_for=override, risk="caps may not hold"
        )
    engine = _engine(stack, arguments.driver, root, override or version)
    store = GrantStore(os.path.join(root, "grants"))
    found = store.load()
    stages.end("grants")
    in_use = {card.uuid: card.index for grant in found.grants for card in grant.cards}
    drained = {card.uuid: card.index for card in cards if card.uuid in before.drained}
    cards = inventory.numbered(cards, {**drained, **in_use})
    alone = drained.keys() - in_use.keys()
    if arguments.driver == "nvidia":
        asked, measured = contexts.of_cards(
            engine, [card for card in cards if card.uuid not in alone], config, node.now.contexts
        )
        cards = [*asked, *(card for card in cards if card.uuid in alone)]
        if measured != node.now.contexts:
            node.note(contexts=measured)
    cards.sort(key=lambda card: card.index)
    _set_up(engine, cards, alone, config)
    engine.evict_wait(config.evict_wait_ms if config.offline_overcommit else 0)
    stages.end("engine")
    grants = Grants(node.now.last_tenant)
    LOG.whose = grants.whose
    policies = CardPolicies(grants, node.now.policies)
    scheduling = Scheduling(engine, grants, policies)
    listeners = Listeners(engine, grants, link, found.unreadable)
    recovered = recovery.take_over(
        engine, grants, scheduling, listeners, found, lambda each: link.read_all(each.take), stages, config
    )
    _tell_guard(engine)
    if config_crc32 != node.now.config_crc32:
        node.note(config_crc32=config_crc32)
    return Mgpud(
        root=root,
        driver=arguments.driver,
        driver_version=version,
        rm_table_override=override,
        served=Served(
            cards=cards,
            config=config,
            engine=engine,
            grants=grants,
            policies=policies,
            scheduling=scheduling,
            store=store,
            node=node,
        ),
        link=link,
        listeners=listeners,
        recovered=recovered,
        end_with=arguments.end_with,
    )
