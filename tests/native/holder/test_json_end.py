"""Where one JSON object ends in a stream, whatever the pieces it arrives in."""

import ctypes
import json
from ctypes import Structure, byref, c_bool, c_size_t, c_uint

import pytest
from hypothesis import given
from hypothesis import strategies as st

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=20,
)


class JsonEnd(Structure):
    _fields_ = [("depth", c_uint), ("in_string", c_bool), ("escaped", c_bool), ("broken", c_bool)]


def feed(core: ctypes.CDLL, state: JsonEnd, piece: bytes) -> bool:
    core.json_end_feed.restype = c_bool
    return bool(core.json_end_feed(byref(state), piece, c_size_t(len(piece))))


@given(
    document=st.dictionaries(st.text(), values, max_size=4),
    cut=st.integers(0, 400),
    ascii_only=st.booleans(),
)
def test_complete_exactly_at_the_last_byte(
    core: ctypes.CDLL, document: object, cut: int, ascii_only: bool
) -> None:
    text = json.dumps(document, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    state = JsonEnd()
    cut = min(cut, len(text) - 1)
    assert not feed(core, state, text[:cut])
    assert not feed(core, state, text[cut:-1])
    assert not state.broken
    assert feed(core, state, text[-1:])


def test_deeper_than_any_message_is_broken(core: ctypes.CDLL) -> None:
    state = JsonEnd()
    assert feed(core, state, b'{"a":' * 64 + b"1" + b"}" * 64)
    state = JsonEnd()
    assert not feed(core, state, b'{"a":' * 65)
    assert state.broken


@pytest.mark.parametrize("text", [b"[]", b"null", b"x{}", b'"{}"', b"\x00{}"])
def test_text_that_is_no_object_is_broken_at_once(core: ctypes.CDLL, text: bytes) -> None:
    state = JsonEnd()
    assert not feed(core, state, text)
    assert state.broken
