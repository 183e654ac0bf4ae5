"""The nodes as arrays, a row a node: what is decided for all nodes at once is decided here."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from cluster.scheduler.occupancy import Node
from cluster.scheduler.states import NO_CARD, Bools, Ints, States, grown

Rows = NDArray[np.intp]
Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]


class Table:
    """Rows of nodes. A row whose node has gone has no cards, and the next new node gets it.

    states[row]: the states of the node's cards, ascending, so that equal ones stand together. model[row]: the
    number in models of the first card's model. count[row]: its cards. cpu[row]: free thousandths of a CPU,
    and cpu_all[row] of all that pods can have. plain[row]: cards of one policy, no two of them instances of
    one GPU, so that any of them go together. changed: rows since a reader emptied it.
    """

    def __init__(self) -> None:
        self.cards = States()
        self.row_of: dict[str, int] = {}
        self.names: list[str] = []
        self.models: list[str] = []
        self.changed: set[int] = set()
        self._gone: list[int] = []
        self.states: Ints = np.zeros((16, 1), dtype=np.int32)
        self.model: Ints = np.zeros(16, dtype=np.int32)
        self.count: Ints = np.zeros(16, dtype=np.int32)
        self.cpu: Floats = np.zeros(16, dtype=np.float32)
        self.cpu_all: Floats = np.zeros(16, dtype=np.float32)
        self.plain: Bools = np.zeros(16, dtype=np.bool_)

    def __len__(self) -> int:
        return len(self.names)

    def put(self, node: Node) -> None:
        """The node as it is now."""
        row = self.row_of.get(node.name)
        if row is None:
            if not node.is_known:
                return
            row = self._new_row(node.name)
        states = sorted(self.cards.of(card, node.rules) for card in node.cards)
        if len(states) > self.states.shape[1]:
            wider = np.zeros((len(self.states), len(states)), dtype=np.int32)
            wider[:, : self.states.shape[1]] = self.states
            self.states = wider
        np.subtract.at(self.cards.cards, self.states[row], 1)
        self.states[row] = NO_CARD
        self.states[row, : len(states)] = states
        np.add.at(self.cards.cards, self.states[row], 1)
        self.cards.cards[NO_CARD] = 0
        self.model[row] = self._model(node.model)
        self.count[row] = len(states)
        self.cpu[row] = max(0, node.cpu_free_milli)
        self.cpu_all[row] = node.cpu_milli
        self.plain[row] = _is_plain(node)
        self.changed.add(row)
        if not node.is_known:
            del self.row_of[node.name]
            self._gone.append(row)

    def rows(self, names: Iterable[str]) -> Rows:
        """Of those nodes that are known, in the order of the names."""
        found = list(map(self.row_of.get, names))
        if None in found:
            found = [row for row in found if row is not None]
        return np.array(found, dtype=np.intp)

    def _new_row(self, name: str) -> int:
        if self._gone:
            row = self._gone.pop()
            self.names[row] = name
        else:
            row = len(self.names)
            self.names.append(name)
            self.states = grown(self.states, row + 1)
            self.model = grown(self.model, row + 1)
            self.count = grown(self.count, row + 1)
            self.cpu = grown(self.cpu, row + 1)
            self.cpu_all = grown(self.cpu_all, row + 1)
            self.plain = grown(self.plain, row + 1)
        self.row_of[name] = row
        return row

    def _model(self, name: str) -> int:
        if name not in self.models:
            self.models.append(name)
        return self.models.index(name)


def _is_plain(node: Node) -> bool:
    policies = {card.policy for card in node.cards if card.policy is not None}
    return policies <= {node.rules.policy} and len({card.minor for card in node.cards}) == len(node.cards)
