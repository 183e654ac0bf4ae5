"""What `mgpu web --node` shows of nodes: what their metrics say, or why they say nothing."""

import http.server
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from mgpu_cli.web import cluster
from mgpu_cli.web.cluster import AGE_S, ClusterView, Node, fetch, told
from oci_specs.refusal import Refusal
from tests.unit.cli_support import mgpu

GPU = "GPU-1"
OF_CARD = f'card="0",uuid="{GPU}"'
OF_CONTAINER = (
    'container_id="{id}",namespace="{namespace}",pod="{pod}",container="{name}",class="{qos}",policy="x"'
)
TEXT = "\n".join(
    (
        'mgpu_build_info{version="0.1.0",driver="nvidia",driver_version="580.1"} 1',
        f'mgpu_card_info{{{OF_CARD},model="A10",policy="fixed-share"}} 1',
        *(
            f"mgpu_card_memory_{what}bytes{{{OF_CARD}}} {value}"
            for what, value in (
                ("", 100),
                ("granted_", 60),
                ("reclaimable_", 30),
                ("evicted_", 5),
                ("used_", 40),
            )
        ),
        f"mgpu_card_lost{{{OF_CARD}}} 0",
        f"mgpu_card_drained{{{OF_CARD}}} 1",
        *(
            f"mgpu_container_memory_{what}_bytes{{{OF_CONTAINER.format(**of)},{OF_CARD}}} {value}"
            for of in (
                {"id": "a" * 64, "namespace": "prod", "pod": "chat", "name": "main", "qos": "online"},
                {"id": "b" * 64, "namespace": "", "pod": "", "name": "", "qos": "offline"},
            )
            for what, value in (("used", 20), ("limit", 50), ("evicted", 5))
        ),
        f'mgpu_container_share_ratio{{container_id="{"a" * 64}",class="online"}} 0.25',
        'mgpu_start_need{need="room"} 0',
        'mgpu_start_need{need="cdi"} 1',
        'mgpu_refused_containers_total{reason="memory"} 3',
        'mgpu_refused_containers_total{reason="card"} 0',
        'mgpu_memory_moves_total{what="evicted"} 2',
        "",
    )
)


def test_node_is_what_its_metrics_say() -> None:
    found = told(TEXT)
    [card] = found["cards"]
    assert {
        name: card[name] for name in ("index", "name", "lost", "drained", "granted_bytes", "used_bytes")
    } == {
        "index": 0,
        "name": "A10",
        "lost": False,
        "drained": True,
        "granted_bytes": 60,
        "used_bytes": 40,
    }
    assert [
        (one["label"], one["class"], one["share"], one["used"], one["limit"], one["evicted"])
        for one in card["containers"]
    ] == [("prod/chat/main", "online", 0.25, 20, 50, 5), ("b" * 12, "offline", None, 20, 50, 5)]
    assert (found["missing"], found["refused"], found["moves"]) == (["room"], {"memory": 3}, {"evicted": 2})


@pytest.mark.parametrize("text", ["", "<html>", "up 1\n", TEXT.replace(f'uuid="{GPU}"', 'uuid="x"', 1)])
def test_what_are_no_metrics_of_mgpu_is_said(text: str) -> None:
    view = ClusterView([Node("one", "http://one")], lambda _url: text)
    [node] = json.loads(view.now())["nodes"]
    assert set(node) == {"node", "away"}


def test_node_that_does_not_answer_hides_no_other() -> None:
    times, asked = [0.0], []

    def ask(url: str) -> str:
        asked.append(url)
        if url == "http://two":
            raise OSError("Connection refused")
        return TEXT

    view = ClusterView([Node("one", "http://one"), Node("two", "http://two")], ask, lambda: times[0])
    one, two = json.loads(view.now())["nodes"]
    assert one["node"] == "one"
    assert one["cards"]
    assert two == {"node": "two", "away": "Connection refused"}
    view.now()
    assert len(asked) == 2, "others that look are told the same"
    times[0] += AGE_S
    view.now()
    assert len(asked) == 4
    with pytest.raises(Refusal, match="its own node"):
        view.log("a")


@contextmanager
def answering(status: int, body: bytes, gap_s: float = 0, **headers: str) -> Iterator[str]:
    class Session(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            if not gap_s:
                self.wfile.write(body)
                return
            with suppress(OSError):
                for byte in body:
                    self.wfile.write(bytes([byte]))
                    time.sleep(gap_s)

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Session) as made:
        thread = threading.Thread(target=made.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{made.server_port}/metrics"
        finally:
            made.shutdown()
            thread.join()


def test_metrics_are_fetched_whole_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    with answering(200, TEXT.encode()) as url:
        assert fetch(url) == TEXT
        monkeypatch.setattr(cluster, "ANSWER_MAX_BYTES", 100)
        with pytest.raises(OSError, match="more than"):
            fetch(url)
    with answering(302, b"", Location="http://127.0.0.1:1/") as url:
        with pytest.raises(OSError, match="answers 302"):
            fetch(url)


@pytest.mark.parametrize("headers", [{}, {"Content-Length": str(len(TEXT))}], ids=["to its end", "counted"])
def test_nodes_that_send_a_byte_at_a_time_have_no_longer_than_others(
    monkeypatch: pytest.MonkeyPatch, headers: dict[str, str]
) -> None:
    monkeypatch.setattr(cluster, "ANSWER_S", 0.3)
    with (
        answering(200, TEXT.encode(), 0.05, **headers) as url,
        pytest.raises(TimeoutError, match="Timed out"),
    ):
        fetch(url)


@pytest.mark.parametrize("word", ["one", "=http://x", "one=ftp://x", "one=/run/x"])
def test_what_is_no_node_is_refused(word: str) -> None:
    done = mgpu("web", "--node", word)
    assert done.exit_code == 2
    assert "NAME=URL" in done.output
