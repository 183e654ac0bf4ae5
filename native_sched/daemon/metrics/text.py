"""mgpud's metrics as Prometheus reads them: what there is, and what each is now.

Imports prometheus_client, so only what serves metrics imports this, once everything else runs.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily as Counter
from prometheus_client.core import GaugeMetricFamily as Gauge
from prometheus_client.core import HistogramMetricFamily as Histogram
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from native_sched.daemon.control.report import BUILD
from native_sched.daemon.grants.grants import Grant
from native_sched.daemon.metrics.account import NS_PER_S
from native_sched.daemon.metrics.container import REASONS, Held, containers, held
from native_sched.daemon.metrics.service import Observed
from native_sched.daemon.node.inventory import CardInfo
from oci_specs.build import commit_of, version
from oci_specs.request import Qos
from runtime_hook.needs import ROWS

CLASSES: tuple[Qos, ...] = ("online", "offline")
_MIB = 1 << 20
CARD_LABELS = ("card", "uuid")


def _card(card: CardInfo) -> list[str]:
    return [str(card.index), card.uuid]


def _buckets(bounds_s: Iterable[float], counts: Iterable[int]) -> list[tuple[str, float]]:
    """As Prometheus has them: each with those below it."""
    bounds = [*(f"{bound:g}" for bound in bounds_s), "+Inf"]
    return list(zip(bounds, accumulate(counts), strict=True))


class ObservedCollector(Collector):
    """Collects from what mgpud observes; what there is to collect is not known before."""

    def __init__(self, observed: Observed) -> None:
        self._of = observed

    def describe(self) -> Iterable[Metric]:
        return ()


class NodeCollector(ObservedCollector):
    """What is known of the node as a whole, of mgpud and of the scheduler."""

    def collect(self) -> Iterator[Metric]:
        of = self._of
        build = Gauge(
            "mgpu_build_info",
            "Always 1; the labels say what runs.",
            labels=["version", "commit", "driver", "driver_version"],
        )
        build.add_metric([version(), commit_of(BUILD), of.driver, of.driver_version], 1)
        yield build
        yield Gauge("mgpu_driver_up", "Whether the GPU driver answers mgpud.", of.engine.driver_alive)
        needs = Gauge(
            "mgpu_start_need",
            "Whether something that a container's start needs is there.",
            labels=["need"],
        )
        missing = {each.name for each in of.missing()}
        for name, _stops, _holds in ROWS:
            needs.add_metric([name], name not in missing)
        yield needs
        yield Gauge(
            "mgpu_scheduler_realtime",
            "Whether the scheduler's thread runs under SCHED_FIFO.",
            of.engine.realtime,
        )
        yield from self._recovery()
        yield from self._threads()
        yield from self._engine()
        yield from self._refused()
        yield Gauge("mgpu_containers", "Containers that hold a grant.", len(of.grants))
        yield Counter(
            "mgpu_lost_listeners",
            "Containers that were found without the listener of their main process.",
            of.lost_listeners(),
        )
        yield from self._moved()
        yield Counter(
            "mgpu_log_lines_left_out", "Lines that the log's rate limits left out.", of.log.left_out
        )

    def _moved(self) -> Iterator[Metric]:
        moved = self._of.moved
        times = Counter(
            "mgpu_memory_moves",
            "Times that a container's memory left its GPUs or came back.",
            labels=["what"],
        )
        took = Histogram("mgpu_memory_move_seconds", "How long those that succeeded took.", labels=["what"])
        for what, of in (("evicted", moved.evicting), ("restored", moved.restoring)):
            took.add_metric([what], buckets=_buckets(of.bounds_s, of.counts), sum_value=of.sum_s)
        yield took
        yield Histogram(
            "mgpu_memory_away_seconds",
            "From the end of a container's eviction until its memory was back.",
            buckets=_buckets(moved.away.bounds_s, moved.away.counts),
            sum_value=moved.away.sum_s,
        )
        sizes = Counter("mgpu_memory_moved_bytes", "Memory that did.", labels=["what"])
        for what, count in (
            ("evicted", sum(moved.evicting.counts)),
            ("restored", sum(moved.restoring.counts)),
            ("failed", moved.failures),
        ):
            times.add_metric([what], count)
        for what, count in (("evicted", moved.evicted_bytes), ("restored", moved.restored_bytes)):
            sizes.add_metric([what], count)
        yield from (times, sizes)

    def _recovery(self) -> Iterator[Metric]:
        """Counted by this mgpud: the previous one no longer counts."""
        of = self._of
        yield Gauge("mgpu_generation", "mgpuds of this node so far, this one included.", of.generation)
        yield Gauge(
            "mgpu_recovery_duration_seconds",
            "From this mgpud's start until it served the containers of the previous one.",
            of.recovered.duration_ms / 1000,
        )
        taken = Gauge("mgpu_recovered", "What this mgpud took over from the previous one.", labels=["what"])
        for what in ("tenants", "listeners", "calls", "ended", "failed", "forgotten"):
            taken.add_metric([what], getattr(of.recovered, what))
        yield taken

    def _threads(self) -> Iterator[Metric]:
        stuck = Gauge(
            "mgpu_thread_stuck_seconds",
            "For how long a thread has been at one thing although it was called; 0 while it turns.",
            labels=["thread"],
        )
        watchdog = self._of.watchdog
        for thread in (watchdog.scheduler, watchdog.mediator, watchdog.daemon):
            stuck.add_metric([thread.name], thread.stuck_s)
        yield stuck

    def _engine(self) -> Iterator[Metric]:
        stats = self._of.engine.stats()
        for name, text, count in (
            ("mgpu_mediated_calls", "Calls of containers that mgpud answered.", stats.calls),
            ("mgpu_scheduler_turns", "Turns of the scheduler's thread.", stats.turns),
            ("mgpu_scheduler_polls", "Polls of a GPU for work.", stats.polls),
            (
                "mgpu_suspend_failures",
                "Suspensions that the driver refused; tried again.",
                stats.suspend_failures,
            ),
            (
                "mgpu_resume_failures",
                "Resumptions that the driver refused; tried again.",
                stats.resume_failures,
            ),
        ):
            yield Counter(name, text, count)
        yield Gauge("mgpu_listeners", "Seccomp listeners that are served.", stats.listeners)
        for name, text, bounds_ns, counts, sum_ns in (
            (
                "mgpu_preemption_latency_seconds",
                "From the decision to suspend a container for another's work to its being off the GPU.",
                self._of.engine.latency_bounds_ns,
                stats.preemption,
                stats.preemption_sum_ns,
            ),
            (
                "mgpu_parked_seconds",
                "How long calls of online containers waited for memory that gives way.",
                self._of.engine.parked_bounds_ns,
                stats.parked,
                stats.parked_ns,
            ),
        ):
            buckets = _buckets([ns / NS_PER_S for ns in bounds_ns], counts)
            yield Histogram(name, text, buckets=buckets, sum_value=sum_ns / NS_PER_S)

    def _refused(self) -> Iterator[Metric]:
        calls = Counter(
            "mgpu_refused_calls", "Calls of containers that mgpud itself refused.", labels=["reason"]
        )
        for reason, count in zip(REASONS, self._of.engine.stats().refused, strict=True):
            calls.add_metric([reason], count)
        yield calls
        containers = Counter(
            "mgpu_refused_containers", "Containers that were refused when created.", labels=["reason"]
        )
        for reason, count in self._of.refusals.counts.items():
            containers.add_metric([reason], count)
        yield containers


class CardCollector(ObservedCollector):
    """Each card, whatever is on it. held: what containers hold of it, at one moment."""

    held: Held

    def collect(self) -> Iterator[Metric]:
        of = self._of
        grants = list(of.grants)
        info = Gauge(
            "mgpu_card_info",
            "Always 1; the GPU's model and policy.",
            labels=[*CARD_LABELS, "model", "policy"],
        )
        memory, used, granted, reclaimable, evicted = (
            Gauge(f"mgpu_card_memory_{what}bytes", text, labels=CARD_LABELS)
            for what, text in (
                ("", "Memory of the GPU."),
                ("used_", "Memory that containers hold."),
                ("granted_", "Memory that containers were granted for their own."),
                ("reclaimable_", "Memory that containers were granted besides, which gives way to online."),
                ("evicted_", "Memory of containers that is kept in host memory."),
            )
        )
        lost = Gauge("mgpu_card_lost", "Whether the GPU has fallen off the bus.", labels=CARD_LABELS)
        drained = Gauge("mgpu_card_drained", "Whether the operator drains the GPU.", labels=CARD_LABELS)
        mismatches = Counter(
            "mgpu_audit_mismatches",
            "Audits that found the driver to count more memory to a container than the ledger.",
            labels=CARD_LABELS,
        )
        found = of.engine.stats().audit_mismatches
        for card in of.cards:
            owned = of.policies.of(card.index)
            labels = _card(card)
            own = [(grant, share) for grant in grants for share in grant.cards if share.index == card.index]
            lost.add_metric(labels, card.index in of.closed.lost)
            drained.add_metric(labels, card.index in of.closed.drained)
            mismatches.add_metric(labels, found[card.index])
            info.add_metric([*labels, card.name, owned.policy if owned else ""], 1)
            memory.add_metric(labels, card.memory_mib * _MIB)
            holds = [(grant, int(self.held[grant.tenant, card.index].used_bytes)) for grant, _ in own]
            used.add_metric(labels, sum(size for _, size in holds))
            for family, gives_way in ((granted, False), (reclaimable, True)):
                caps = [share.memory_mib for grant, share in own if grant.reclaimable == gives_way]
                family.add_metric(labels, sum(caps) * _MIB)
            evicted.add_metric(labels, sum(grant.evicted_bytes(card.index, size) for grant, size in holds))
        yield from (info, memory, used, granted, reclaimable, evicted, lost, drained, mismatches)
        yield from self._by_class(grants)

    def _by_class(self, grants: list[Grant]) -> Iterator[Metric]:
        labels = [*CARD_LABELS, "class"]
        containers = Gauge("mgpu_card_containers", "Containers on the GPU.", labels=labels)
        busy = Gauge(
            "mgpu_card_busy", "Whether a container of the class has work on its GPUs.", labels=labels
        )
        run = Counter("mgpu_card_run_seconds", "Time of the GPU charged to containers.", labels=labels)
        account = self._of.account
        looked = [(grant, account.look(grant)) for grant in grants]
        for card in self._of.cards:
            for qos in CLASSES:
                own = [seen for grant, seen in looked if grant.qos == qos and grant.has_card(card.index)]
                name = [*_card(card), qos]
                containers.add_metric(name, len(own))
                busy.add_metric(name, any(seen.busy for seen in own))
                run.add_metric(name, account.card_run_ns.get((card.index, qos), 0) / NS_PER_S)
        yield from (containers, busy, run)


def renderer(observed: Observed) -> Callable[[bool], tuple[bytes, str]]:
    """A function from whether OpenMetrics is asked for to the text of all metrics and its content type: what
    is of the node and its cards, mgpud's own CPU time, memory and descriptors, and containers.
    """
    registry, cards = CollectorRegistry(auto_describe=False), CardCollector(observed)
    ProcessCollector(registry=registry)
    registry.register(NodeCollector(observed))
    registry.register(cards)

    def render(openmetrics: bool) -> tuple[bytes, str]:
        cards.held = held(observed.engine, observed.grants)
        encode, kind = choose_encoder("application/openmetrics-text; version=1.0.0" if openmetrics else "")
        end = b"# EOF\n" if openmetrics else b""
        head = encode(registry).removesuffix(end)
        return head + containers(observed, cards.held, openmetrics).encode() + end, kind

    return render
