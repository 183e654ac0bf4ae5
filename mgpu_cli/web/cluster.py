"""What the page shows of several nodes: what their metrics say."""

import errno
import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from oci_specs.refusal import Refusal, printable
from oci_specs.unix_http import UnixConnection

# However many look, each node is asked this seldom; what it answers is no larger, and comes in this time.
AGE_S, ANSWER_S, ANSWER_MAX_BYTES = 2.0, 2.0, 8 << 20
AT_ONCE = 32


class Node(NamedTuple):
    """url: of its metrics; "unix:PATH" is mgpud's own socket."""

    name: str
    url: str


class ClusterView:
    """As View, of nodes. ask: the text of a node's metrics; OSError."""

    def __init__(
        self,
        nodes: Sequence[Node],
        ask: Callable[[str], str] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._nodes, self._ask, self._clock = nodes, ask or fetch, clock
        self._lock = threading.Lock()
        self._kept: tuple[float, bytes] | None = None

    def now(self) -> bytes:
        with self._lock:
            if self._kept is None or self._clock() - self._kept[0] >= AGE_S:
                with ThreadPoolExecutor(AT_ONCE) as pool:
                    nodes = list(pool.map(self._look, self._nodes))
                found = {"time": datetime.now(UTC).isoformat(timespec="seconds"), "nodes": nodes}
                self._kept = self._clock(), json.dumps(found).encode()
            return self._kept[1]

    def log(self, _container_id: str) -> bytes:
        raise Refusal("no-log", "a container's log is shown by its own node", "mgpu logs, on that node")

    def _look(self, node: Node) -> dict[str, Any]:
        try:
            return {"node": node.name, **told(self._ask(node.url))}
        except (OSError, ArithmeticError, ValueError, KeyError, http.client.HTTPException) as error:
            said = getattr(error, "strerror", None) or str(error) or type(error).__name__
            return {"node": node.name, "away": printable(said)}


def told(text: str) -> dict[str, Any]:
    """A node by its metrics; ValueError or KeyError where they are not mgpud's."""
    # It takes as long to load as all else of a command.
    from prometheus_client.parser import text_string_to_metric_families

    samples = [one for family in text_string_to_metric_families(text) for one in family.samples]

    def of(name: str) -> list[tuple[dict[str, str], float]]:
        return [(one.labels, one.value) for one in samples if one.name == name]

    def sums(name: str, label: str) -> dict[str, int]:
        return {labels[label]: int(value) for labels, value in of(name) if value}

    [(build, _)] = of("mgpu_build_info")
    cards: dict[str, dict[str, Any]] = {
        labels["uuid"]: {
            "index": int(labels["card"]),
            "uuid": labels["uuid"],
            "name": labels["model"],
            "policy": labels["policy"],
            "containers": [],
        }
        for labels, _ in of("mgpu_card_info")
    }
    for what in ("", "granted_", "reclaimable_", "evicted_", "used_"):
        for labels, value in of(f"mgpu_card_memory_{what}bytes"):
            cards[labels["uuid"]][f"{what}bytes"] = value
    for what in ("lost", "drained"):
        for labels, value in of(f"mgpu_card_{what}"):
            cards[labels["uuid"]][what] = bool(value)
    shares = {labels["container_id"]: value for labels, value in of("mgpu_container_share_ratio")}
    held = [
        (labels, what, value)
        for what in ("used", "limit", "evicted")
        for labels, value in of(f"mgpu_container_memory_{what}_bytes")
    ]
    held.sort(key=lambda each: _place(each[0]))
    for (uuid, container_id), own in groupby(held, lambda each: _place(each[0])):
        rows = list(own)
        labels = rows[0][0]
        cards[uuid]["containers"].append(
            {
                "id": container_id,
                "label": _label(labels),
                "class": labels["class"],
                "share": shares.get(container_id),
                **{what: value for _, what, value in rows},
            }
        )
    return {
        "build": build["version"],
        "driver": f"{build['driver']} {build['driver_version']}",
        "cards": sorted(cards.values(), key=lambda card: int(card["index"])),
        "missing": [labels["need"] for labels, value in of("mgpu_start_need") if not value],
        "refused": sums("mgpu_refused_containers_total", "reason"),
        "moves": sums("mgpu_memory_moves_total", "what"),
    }


def _place(labels: dict[str, str]) -> tuple[str, str]:
    return labels["uuid"], labels["container_id"]


def _label(labels: dict[str, str]) -> str:
    named = [labels[name] for name in ("namespace", "pod", "container") if labels[name]]
    return "/".join(named) or labels["container_id"][:12]


@contextmanager
def _no_longer_than(seconds: float, link: socket.socket) -> Iterator[None]:
    """TimeoutError. A socket's own time limit is for one read, and a node may send one byte for each."""
    late = threading.Event()

    def end() -> None:
        late.set()
        with suppress(OSError):
            link.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(seconds, end)
    timer.start()
    try:
        yield
    except http.client.HTTPException:
        if not late.is_set():
            raise
    finally:
        timer.cancel()
    if late.is_set():
        raise TimeoutError(errno.ETIMEDOUT, "Timed out")


def fetch(url: str) -> str:
    """What is there by GET; it follows no redirection. OSError."""
    at = urlsplit(url)
    if at.scheme == "unix":
        link: http.client.HTTPConnection = UnixConnection(at.path, ANSWER_S)
    elif at.scheme == "https":
        link = http.client.HTTPSConnection(at.netloc, timeout=ANSWER_S)
    else:
        link = http.client.HTTPConnection(at.netloc, timeout=ANSWER_S)
    with closing(link):
        link.connect()
        with _no_longer_than(ANSWER_S, link.sock):
            link.request("GET", "/metrics" if at.scheme == "unix" else at.path or "/metrics")
            reply = link.getresponse()
            body = reply.read(ANSWER_MAX_BYTES + 1)
    if reply.status != http.client.OK:
        raise OSError(f"answers {reply.status} {reply.reason}")
    if len(body) > ANSWER_MAX_BYTES:
        raise OSError(f"answers more than {ANSWER_MAX_BYTES >> 20} MiB")
    return body.decode()
