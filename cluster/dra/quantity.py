"""Kubernetes' quantities (k8s.io/apimachinery/pkg/api/resource.Quantity): one amount has several texts."""

from __future__ import annotations

import re
from fractions import Fraction

_FORM = re.compile(
    r"([+-]?(?:\d{1,30}(?:\.\d{0,30})?|\.\d{1,30}))(?:([numkMGTPE]|[KMGTPE]i)|[eE]([+-]?\d{1,2}))?",
    re.ASCII,
)
_DECIMAL = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {f"{letter}i": 1 << 10 * power for power, letter in enumerate("KMGTPE", 1)}


def read(text: object) -> Fraction:
    """ValueError for what is none."""
    match = _FORM.fullmatch(str(text)) if isinstance(text, str | int) else None
    if match is None:
        raise ValueError(f"{text!r} is no quantity")
    number, suffix, exponent = match.groups()
    value = Fraction(number)
    if suffix in _BINARY:
        return value * _BINARY[suffix]
    return value * Fraction(10) ** (_DECIMAL[suffix] if suffix else int(exponent or 0))
