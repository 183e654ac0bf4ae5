"""Kubernetes' quantities (k8s.io/apimachinery/pkg/api/resource): "500m", "4k", "16Gi", "1e3"."""

from __future__ import annotations

import re
from decimal import Decimal

_QUANTITY = re.compile(
    r"([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))(?:([eE][+-]?[0-9]{1,2})|([numk]|Ki|[MGTPE]i?))?"
)
_SUFFIXES = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "k": Decimal(1000),
    **{letter: Decimal(1000) ** power for power, letter in enumerate("MGTPE", 2)},
    **{f"{letter}i": Decimal(1024) ** power for power, letter in enumerate("KMGTPE", 1)},
}
_CHARS_MAX = 40


def amount(value: object) -> Decimal | None:
    """None for what is no quantity: others write to the API server too."""
    text = str(value)
    found = _QUANTITY.fullmatch(text) if len(text) <= _CHARS_MAX else None
    if found is None:
        return None
    number, exponent, suffix = found.groups()
    return Decimal(number + (exponent or "")) * _SUFFIXES.get(suffix, Decimal(1))


def milli(value: object) -> int:
    """Thousandths, rounded up as Kubernetes does; 0 for what is no quantity."""
    found = amount(value)
    return 0 if found is None else -int(-found * 1000 // 1)


def mib(value: object) -> int:
    """Bytes in MiB, rounded down; 0 for what is no quantity."""
    found = amount(value)
    return 0 if found is None else int(found // (1 << 20))


def whole(value: object) -> int | None:
    """None for a fraction, and for what is no quantity."""
    found = amount(value)
    return int(found) if found is not None and found == found.to_integral_value() else None
