"""Numbers and units of the vendors' keys; inside mgpu memory is MiB, compute percent of one card."""

MIB_PER_GIB = 1024
# tencent.com/vcuda-memory counts blocks of this size (gpu-manager: 1 GiB of memory is vcuda-memory 4).
VCUDA_BLOCK_MIB = 256
# What kubelet counts memory in (docs/cluster.md): the blocks of a container, less what is spare in the last.
BLOCK_MIB = 64
# Nine digits: more than any card or node has, and every product of two such numbers is exact in JSON readers.
MAX_NUMBER = 999_999_999


def whole_number(text: str) -> int | None:
    """The number that ASCII digits alone spell, or None: no sign, blank, underscore, suffix or foreign
    digits.

    None as well above MAX_NUMBER.
    """
    if not (text.isascii() and text.isdigit()):
        return None
    text = text.lstrip("0") or "0"
    return int(text) if len(text) <= len(str(MAX_NUMBER)) else None


def is_above(text: str, most: int) -> bool:
    """Whether ASCII digits alone spell a number above most, however many there are."""
    if not (text.isascii() and text.isdigit()):
        return False
    number = whole_number(text)
    return number is None or number > most


def gib_units(card_mib: int) -> int:
    """How many GiB units a card counts as: floor(total MiB / 1024), as ACK's device plugin reports it."""
    return card_mib // MIB_PER_GIB


def gib_units_to_mib(units: int, card_mib: int) -> int:
    """Memory of `units` GiB units on a card of card_mib MiB.

    A card is divided into gib_units(card_mib) parts of equal size, so that a unit is a little more than a
    GiB: 4 units of a 16160 MiB card are floor(4 * 16160 / 15) = 4309 MiB. Units beyond the card's count give
    more than the card; ValueError for a card below one GiB, which has no unit.
    """
    count = gib_units(card_mib)
    if count == 0:
        raise ValueError(f"a GPU of {card_mib} MiB has no GiB unit")
    return units * card_mib // count
