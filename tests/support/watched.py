"""Commands that the filter watches, as the rows of the interface say them."""

from tests.support import rm_interface

_INTERFACE = rm_interface.read()


def pairs(*dispositions: str) -> tuple[tuple[int, int], ...]:
    """(number, size) of the escapes of these dispositions, in every version; of arrays, of 32 elements."""
    return tuple(
        (escape.number, 32 * size if escape.array else size)
        for escape in _INTERFACE.escapes
        for size in sorted(_INTERFACE.all_sizes(escape.size))
        if escape.disposition in dispositions
    )


RM_PAIRS = pairs("MEDIATED", "ANSWERED")
REFUSED_PAIRS = pairs("REFUSED")
UVM_COMMANDS = tuple(item.number for item in _INTERFACE.uvm if item.disposition != "PASSED")
