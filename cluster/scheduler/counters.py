"""The extender's metrics, in Prometheus' text."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

_BUCKETS_SECONDS = (0.001, 0.002, 0.003, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1, 5, 10)


class Counters:
    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.seconds = Histogram(
            "mgpu_scheduler_call_seconds",
            "How long a call of the stock scheduler took, the API server's part of a binding included",
            ["verb"],
            buckets=_BUCKETS_SECONDS,
            registry=self._registry,
        )
        self.written = Histogram(
            "mgpu_scheduler_write_seconds",
            "How long the extender waited for the API server to write a binding",
            buckets=_BUCKETS_SECONDS,
            registry=self._registry,
        )
        self.refused = Counter(
            "mgpu_scheduler_refused", "Times that a pod fitted on no GPU", registry=self._registry
        )
        self.bindings = Counter(
            "mgpu_scheduler_bindings",
            "Bindings, by what became of them",
            ["outcome"],
            registry=self._registry,
        )
        self.evictions = Counter(
            "mgpu_scheduler_evictions",
            "Times that pods were made to end for another",
            registry=self._registry,
        )
        self.reservations = Gauge(
            "mgpu_scheduler_reservations", "Pods for which GPUs are set aside", registry=self._registry
        )
        self.ready = Gauge(
            "mgpu_scheduler_ready", "Whether nodes and pods have been listed", registry=self._registry
        )

    def text(self) -> bytes:
        return generate_latest(self._registry)
