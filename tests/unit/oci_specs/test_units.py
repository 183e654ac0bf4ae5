import pytest
from hypothesis import given
from hypothesis import strategies as st

from oci_specs import units


def test_v100_of_the_ack_example() -> None:
    assert units.gib_units(16160) == 15
    assert units.gib_units_to_mib(4, 16160) == 4309
    assert units.gib_units_to_mib(1, 16160) == 1077
    assert units.gib_units_to_mib(15, 16160) == 16160


def test_card_below_one_gib_has_no_unit() -> None:
    assert units.gib_units(1023) == 0
    with pytest.raises(ValueError, match="1023 MiB"):
        units.gib_units_to_mib(1, 1023)


@given(st.integers(1024, 1 << 20), st.data())
def test_units_fill_the_card_and_never_more(card_mib: int, data: st.DataObject) -> None:
    count = units.gib_units(card_mib)
    parts = data.draw(
        st.lists(st.integers(1, count), max_size=count).filter(lambda parts: sum(parts) <= count)
    )
    given_mib = sum(units.gib_units_to_mib(part, card_mib) for part in parts)
    assert given_mib <= card_mib
    assert given_mib >= 1024 * sum(parts)
    assert units.gib_units_to_mib(count, card_mib) == card_mib


WHOLE = [
    ("0", 0),
    ("8", 8),
    ("008", 8),
    ("999999999", 999999999),
    ("0" * 5000 + "1", 1),
    ("1000000000", None),
    ("9" * 5000, None),
    ("", None),
    (" 8", None),
    ("8\n", None),
    ("+8", None),
    ("-8", None),
    ("8.0", None),
    ("8e3", None),
    ("0x10", None),
    ("1_000", None),
    ("٨", None),
    ("²", None),
]


@pytest.mark.parametrize(("text", "value"), WHOLE, ids=[repr(text)[:12] for text, _ in WHOLE])
def test_whole_number(text: str, value: int | None) -> None:
    assert units.whole_number(text) == value


ABOVE = [
    ("8", False),
    ("9", True),
    ("0009", True),
    ("9" * 5000, True),
    ("-9", False),
    ("٩", False),
    ("", False),
]


@pytest.mark.parametrize(("text", "above"), ABOVE, ids=[repr(text)[:12] for text, _ in ABOVE])
def test_is_above(text: str, above: bool) -> None:
    assert units.is_above(text, 8) is above
