"""The create path's JSON is json's own, value for value and refusal for refusal."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime_hook import quick_json

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@pytest.fixture(params=["C", "json"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With CPython's C parts, and as on an interpreter that has none."""
    assert quick_json._make_scanner is not None
    if request.param == "json":
        monkeypatch.setattr(quick_json, "_make_scanner", None)
        monkeypatch.setattr(quick_json, "_encode", None)


@given(value=values, indent=st.none() | st.integers(0, 3), blanks=st.text(" \t\r\n", max_size=3))
def test_values(value: Any, indent: int | None, blanks: str) -> None:
    for ascii_only in (True, False):
        text = blanks + json.dumps(value, indent=indent, ensure_ascii=ascii_only) + blanks
        assert quick_json.loads(text) == json.loads(text)
    assert quick_json.dumps(value) == json.dumps(value, separators=(",", ":"))


@given(text=st.text('{}[]",:0123456789.eE+-truefalsn\\u \n\x01', max_size=12))
def test_refusals(text: str) -> None:
    try:
        expected = repr(json.loads(text))
    except ValueError:
        with pytest.raises(ValueError):
            quick_json.loads(text)
    else:
        assert repr(quick_json.loads(text)) == expected


@pytest.mark.parametrize(
    "text", ["", " ", "{} x", "\ufeff{}", "[1,]", "nul", '{"a" 1}', '"\x00"', "{}\x0b", "\xa0{}"]
)
def test_malformed_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        quick_json.loads(text)


@pytest.mark.parametrize("text", ["NaN", "-Infinity", "1e400", '"\\ud800"', '{"a":1,"a":2}'])
def test_nonstandard_json_is_read_as_json_reads_it(text: str) -> None:
    assert repr(quick_json.loads(text)) == repr(json.loads(text))


def test_depth() -> None:
    with pytest.raises(RecursionError):
        quick_json.loads("[" * 100_000)
