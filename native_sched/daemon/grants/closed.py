"""Which cards get no new container, and why."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field


@dataclass
class Closed(Collection[int]):
    """Cards by their indices, as card_watch.py has them now.

    lost: they have fallen off the bus. drained: the operator said so. released: mgpud has nothing of them
    open; False until that is done.
    """

    lost: set[int] = field(default_factory=set)
    drained: set[int] = field(default_factory=set)
    released: dict[int, bool] = field(default_factory=dict)

    def _all(self) -> set[int]:
        return self.lost | self.drained | self.released.keys()

    def __contains__(self, card: object) -> bool:
        return card in self._all()

    def __iter__(self) -> Iterator[int]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())
