"""How the scheduler sees the work on a card: by what is known of the card's chip."""

from collections.abc import Collection, Sequence

from native_sched.daemon.engine import Engine
from native_sched.daemon.engine_abi import Chip, Without
from native_sched.daemon.node.inventory import CardInfo


def _sight(chip: Chip, without: Collection[Without]) -> dict[str, str]:
    name, header = chip.name.decode(), chip.header.decode()
    seen = Without.ENGINE_STATUS not in without
    unreported = "quiet time" if Without.UTILIZATION in without else "RM's samples"
    words = "GP_PUT and GP_GET" if chip.has_get else "GP_PUT"
    own = header.endswith(f"_{name.lower()}.h")
    return {
        "chip": name or "unknown",
        "work": f"{words}, and engine status" if seen else words,
        "idle": "engine status" if seen else unreported,
        "suspended": "runlist" if Without.DISABLE_CHANNELS in without else "DISABLE_CHANNELS",
        "source": header + ("" if own else ", and RM's variants") if name else "none",
    }


def table(engine: Engine, cards: Sequence[CardInfo]) -> list[dict[str, object]]:
    """A row for each kind of card here: chip, work and idle seen by, suspended by, source of the facts."""
    found: dict[tuple[tuple[str, str], ...], list[int]] = {}
    for card in cards:
        row = _sight(engine.chip(card.index), engine.without(card.index))
        found.setdefault(tuple(row.items()), []).append(card.index)
    return [{"cards": where, **dict(row)} for row, where in found.items()]
