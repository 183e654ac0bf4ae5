"""Stages of the run on a card, without a card: containers that say what a test has them say."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.gpu.product import Run
from tests.gpu.results import Result, Results


class Box:
    def __init__(self, ran: Run) -> None:
        self._ran = ran

    def end(self, timeout_s: float = 0) -> Run:
        return self._ran


class Product:
    """Of NVIDIA's driver and two cards; every container says the next thing."""

    driver = "nvidia"
    folder: Path

    def __init__(self, *says: str, status: int = 0, cards: int = 2) -> None:
        self._says = list(says)
        self._status = status
        self._cards = cards
        self.asked: list[dict[str, Any]] = []

    def card_count(self) -> int:
        return self._cards

    def first_card(self) -> tuple[bytes, int]:
        return bytes(16), 0x100

    @contextmanager
    def container(self, argv: list[str], **how: Any) -> Iterator[Box]:
        self.asked.append({"argv": argv, **how})
        yield Box(Run(self._status, self._says.pop(0)))


def verdict(stage: Any, subject: Any, results: Results) -> Result:
    out = Result("it")
    stage(subject, results, out)
    return out
