"""NVIDIA's numbers by NVIDIA's symbols: `from tests.support.rm_numbers import NV01_DEVICE_0`.

Statuses, classes, controls, escapes and commands of nvidia-uvm, from the rows of interface.def, or where no
row has the symbol from the facts of the newest driver that has it; constants that mgpu knows, from the facts.
"""

import functools

from tests.support import rm_interface

FACTS = rm_interface.SOURCE.parent / "facts"
# Kind of fact: the column with the number.
NUMBER_AT = {"status": 1, "class": 1, "control": 1, "escape": 2, "uvm": 1, "constant": 1}


@functools.cache
def by_symbol() -> dict[str, int]:
    found = {}
    for kind, column in NUMBER_AT.items():
        for line in (FACTS / f"{kind}.tsv").read_text().splitlines()[1:]:
            words = line.split("\t")
            found[words[0]] = int(words[column], 16)
    return found | rm_interface.numbers()


def __getattr__(symbol: str) -> int:
    number = by_symbol().get(symbol)
    if number is None:
        raise AttributeError(f"neither a row of interface.def nor a fact: {symbol}")
    return number
