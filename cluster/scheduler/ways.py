"""The ways to place a pod on the nodes: which states of cards each takes, for all nodes at once."""

from typing import NamedTuple

import numpy as np

from cluster.scheduler.states import NO_CARD, Demand, Ints
from cluster.scheduler.table import Rows, Table


class Ways(NamedTuple):
    """Ways to place a pod: each on one row, its cards from these states to those, one column a card taken."""

    rows: Rows
    before: Ints
    after: Ints


def without_cards(rows: Rows) -> Ways:
    """Of a pod that asks for none."""
    nothing = np.zeros((len(rows), 0), dtype=np.int32)
    return Ways(rows, nothing, nothing)


def of_one_card(table: Table, demand: Demand, rows: Rows) -> Ways:
    """On each row each different card where it fits, equal ones once."""
    states = table.states[rows]
    # Equal states stand together.
    again = states[:, 1:] == states[:, :-1]
    states[:, 1:][again] = NO_CARD
    which, place = np.nonzero(demand.fits(states))
    before = states[which, place]
    return Ways(rows[which], before[:, None], demand.after(before)[:, None])


def of_several(table: Table, demand: Demand, rows: Rows, count: int) -> Ways:
    """On each row that has as many the first cards where it fits, by state; all rows are plain."""
    states = table.states[rows]
    fits = demand.fits(states)
    enough = fits.sum(axis=1) >= count
    rows, states, fits = rows[enough], states[enough], fits[enough]
    fits &= np.cumsum(fits, axis=1) <= count
    before: Ints = states[fits].reshape(len(rows), count)
    return Ways(rows, before, demand.after(before.ravel()).reshape(before.shape))
