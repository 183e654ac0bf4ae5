"""Tables at their natural width, as docker and kubectl print them: nothing is cut for a narrow terminal."""

from collections.abc import Iterable, Sequence

from rich.cells import cell_len

from oci_specs.refusal import printable

GAP = "  "


def text(rows: Iterable[Sequence[object]]) -> str:
    """The rows as lines with aligned columns, without blanks at their ends; all rows are equally long.

    Control characters are escaped, because names come from pods and may hold a terminal's commands.
    """
    cells = [[printable(str(value)) for value in row] for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
    return "".join(_line(row, widths) for row in cells)


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    # In terminal columns, not characters: a Chinese character takes two.
    padded = (cell + " " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True))
    return GAP.join(padded).rstrip() + "\n"
