"""How amounts round, as Kubernetes rounds them."""

import pytest

from cluster.api import quantity


@pytest.mark.parametrize(
    ("text", "milli"),
    [
        ("500m", 500),
        ("2", 2000),
        (1, 1000),
        ("100u", 1),
        (".4815", 482),
        ("x", 0),
        ("9" * 30, int("9" * 30) * 1000),
    ],
)
def test_thousandths_round_up(text: object, milli: int) -> None:
    assert quantity.milli(text) == milli


@pytest.mark.parametrize(("text", "mib"), [("16Gi", 16384), ("1048575", 0), ("3e6", 2), ("x", 0)])
def test_mebibytes_round_down(text: object, mib: int) -> None:
    assert quantity.mib(text) == mib


@pytest.mark.parametrize(
    ("text", "whole"), [("4k", 4000), ("1.5", None), ("1500m", None), ("2000m", 2), ("x", None)]
)
def test_fraction_is_no_whole_number(text: object, whole: int | None) -> None:
    assert quantity.whole(text) == whole
