"""A stand-in for mgpud: it answers each packet with what a test prepared, and remembers what was asked."""

import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from mgpu_cli.main import main

MIB = 1 << 20
CARD_UUIDS = ("GPU-00000000-0000-4000-8000-000000000000", "GPU-00000000-0000-4000-8000-000000000001")


ID = "0123456789abcdef"
HEALTH = {
    "driver": "sim",
    "driver_version": "545.1",
    "driver_alive": True,
    "pid": 4242,
    "build": "0.1.0 (1a2b3c4d5e6f)",
    "prefix": "/opt/mgpu",
    "uptime_seconds": 3723.5,
    "max_rss_kib": 45 << 10,
    "cards": 2,
    "containers": 1,
    "listeners": 3,
    "sched_fifo": True,
    "without": [],
    "hold_ms": 100,
    "quiet_ms": 5,
    "poll_fast_us": 300,
    "scheduler_turns": 17,
    "scheduler_stuck_seconds": 0.0,
    "mediator_stuck_seconds": 0.0,
    "log_left_out": 0,
    "errors": [],
}


def at(minutes_ago: int) -> str:
    return (datetime.now(UTC) - timedelta(minutes=minutes_ago)).isoformat()


def event(number: int, container_id: str = ID, *, pod: str = "", minutes_ago: int = 0) -> dict[str, Any]:
    return {
        "number": number,
        "time": at(minutes_ago),
        "kind": "GPUMemoryEvicted",
        "container_id": container_id,
        "pod": pod,
        "namespace": "shop" if pod else "",
        "container": "main" if pod else container_id,
        "text": "64 MiB of GPU memory were moved",
    }


def container(**changed: Any) -> dict[str, Any]:
    """One entry of a list reply: two cards of a V100 pair, capped at 4309 MiB each."""
    return {
        "id": "g1",
        "container_id": "0123456789abcdef",
        "pod": None,
        "namespace": None,
        "container": "0123456789abcdef",
        "class": "online",
        "policy": "fixed-share",
        "advisory": False,
        "state": "bound",
        "paused": False,
        "containerd": None,
        "pid": 4242,
        "cards": [
            {
                "index": index,
                "uuid": uuid,
                "memory_mib": 4309,
                "used_bytes": used_bytes,
                "peak_bytes": 600 * MIB,
                "core_percent": None,
            }
            for index, uuid, used_bytes in ((0, CARD_UUIDS[0], 512 * MIB), (1, CARD_UUIDS[1], 0))
        ],
        "sched": sched(),
        "processes": [{"pid": 4243, "card": 0, "used_bytes": 512 * MIB}],
        "created": "2024-05-06T07:08:09Z",
    } | changed


def sched(**changed: Any) -> dict[str, Any]:
    return {
        "enabled": True,
        "busy": False,
        "throttled": False,
        "why": "none",
        "run_ns": 0,
        "suspended_ns": 0,
        "preemptions": 0,
        "video_ns": 0,
        "quota_percent": 100,
    } | changed


def card(**changed: Any) -> dict[str, Any]:
    return {
        "index": 0,
        "minor": 0,
        "uuid": CARD_UUIDS[0],
        "name": "Tesla V100-SXM2-16GB",
        "memory_mib": 16160,
        "policy": "fixed-share",
        "granted_mib": 4309,
        "used_bytes": 512 * MIB,
        "containers": 1,
    } | changed


def list_reply(
    containers: list[dict[str, Any]], cards: list[dict[str, Any]], now_ns: int = 10**12
) -> dict[str, Any]:
    return {"version": 1, "ok": True, "now_ns": now_ns, "containers": containers, "cards": cards}


def mgpu(*args: str) -> Result:
    """The command, in this process."""
    return CliRunner().invoke(main, args)


class FakeMgpud:
    def __init__(self, answer: bytes) -> None:
        self.answer = answer
        self.asked: list[dict[str, Any]] = []
        self._by_verb: dict[str, list[bytes]] = {}

    def reply(self, reply: object) -> None:
        """What is said to every verb that no reply_to names."""
        self.answer = json.dumps(reply).encode()

    def reply_to(self, verb: str, *replies: object) -> None:
        """What is said to the verb, one after the other; the last one again and again."""
        self._by_verb[verb] = [json.dumps(reply).encode() for reply in replies]

    def answer_to(self, verb: str) -> bytes:
        replies = self._by_verb.get(verb)
        if not replies:
            return self.answer
        return replies.pop(0) if len(replies) > 1 else replies[0]


@contextmanager
def fake_mgpud(control: Path) -> Iterator[FakeMgpud]:
    fake = FakeMgpud(b"")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(os.fspath(control))
        listener.listen()
        thread = threading.Thread(target=_serve, args=(listener, fake))
        thread.start()
        try:
            yield fake
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def _serve(listener: socket.socket, fake: FakeMgpud) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection:
            fake.asked.append(json.loads(connection.recv(1 << 17)))
            answer = fake.answer_to(fake.asked[-1]["verb"])
            if answer:
                connection.sendall(answer)
