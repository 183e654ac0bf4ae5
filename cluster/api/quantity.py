"""Kubernetes' quantities (k8s.io/apimachinery/pkg/api/resource.Quantity): one amount has several texts."""

import re
from fractions import Fraction
from functools import lru_cache

_FORM = re.compile(
    r"([+-]?(?:\d{1,30}(?:\.\d{0,30})?|\.\d{1,30}))(?:([numkMGTPE]|[KMGTPE]i)|[eE]([+-]?\d{1,2}))?",
    re.ASCII,
)
_DECIMAL = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {f"{letter}i": 1 << 10 * power for power, letter in enumerate("KMGTPE", 1)}


def read(text: object) -> Fraction:
    """ValueError for what is none."""
    if not isinstance(text, str | int):
        raise ValueError(f"{text!r} is no quantity")
    return _read(str(text))


# A cluster's objects have few different amounts, and a Fraction takes long to make.
@lru_cache(maxsize=4096)
def _read(text: str) -> Fraction:
    match = _FORM.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no quantity")
    number, suffix, exponent = match.groups()
    value = Fraction(number)
    if suffix in _BINARY:
        return value * _BINARY[suffix]
    return value * Fraction(10) ** (_DECIMAL[suffix] if suffix else int(exponent or 0))


def milli(value: object) -> int:
    """Thousandths, rounded up as Kubernetes does; 0 for what is no quantity."""
    found = _amount(value)
    return 0 if found is None else -int(-found * 1000 // 1)


def mib(value: object) -> int:
    """Bytes in MiB, rounded down; 0 for what is no quantity."""
    found = _amount(value)
    return 0 if found is None else int(found // (1 << 20))


def whole(value: object) -> int | None:
    """None for a fraction, and for what is no quantity. The API server writes 4000 as "4k"."""
    found = _amount(value)
    return int(found) if found is not None and found.denominator == 1 else None


def _amount(value: object) -> Fraction | None:
    """None for what is no quantity: others write to the API server too."""
    try:
        return read(value)
    except ValueError:
        return None
