import tomllib
from pathlib import Path

import pytest
from hypothesis import given

from install import block, toml_text
from install.edit import Edited, NotHere
from oci_specs.refusal import Refusal
from tests.unit.install_support import toml_texts

PATH = Path("/etc/x.toml")
KEYS = ("plugins", "io.containerd.grpc.v1.cri", "containerd", "runtimes", "mgpu")
PREFIX = '[plugins."io.containerd.grpc.v1.cri".containerd'
TABLE = {"runtime_type": "t", "list": ["a/*", "b"], "options": {"BinaryName": "/x", "SystemdCgroup": True}}


def add(text: str) -> str:
    edited = toml_text.with_table(text, PATH, KEYS, TABLE, "mgpu uninstall x")
    assert edited.text is not None
    return edited.text


def remove(text: str) -> str:
    edited = toml_text.without(text, PATH)
    assert isinstance(edited, Edited)
    assert edited.text is not None
    return edited.text


@given(toml_texts(prefix=PREFIX))
def test_every_byte_of_others_stays(text: str) -> None:
    after = add(text)
    assert after.startswith(text)
    document = tomllib.loads(after)
    assert toml_text.at(document, KEYS) == TABLE
    del toml_text.at(document, KEYS[:-1])["mgpu"]
    before = tomllib.loads(text)
    for depth in range(len(KEYS) - 1, 0, -1):
        if toml_text.at(before, KEYS[:depth]) is None:
            assert toml_text.at(document, KEYS[:depth]) == {}
            del toml_text.at(document, KEYS[: depth - 1])[KEYS[depth - 1]]
    assert document == before


@given(toml_texts(prefix=PREFIX))
def test_removed_block_restores_the_file(text: str) -> None:
    assert remove(add(text)) == text


@given(toml_texts(prefix=PREFIX))
def test_adding_twice_equals_once(text: str) -> None:
    assert add(add(text)) == add(text)


def test_removal_keeps_text_below_the_block() -> None:
    assert remove(add("a = 1") + "[later]\nb = 2\n") == "a = 1\n[later]\nb = 2\n"
    assert remove(add("a = 1\n") + "[later]\n") == "a = 1\n[later]\n"


def test_newer_block_replaces_an_older_one() -> None:
    older = toml_text.with_table("a = 1\n", PATH, KEYS, {"runtime_type": "old"}, "mgpu uninstall x").text
    assert older is not None
    assert add(older) == add("a = 1\n")


def test_change_inside_the_block_is_said() -> None:
    touched = add("a = 1\n").replace('runtime_type = "t"', 'runtime_type = "u"')
    edited = toml_text.without(touched, PATH)
    assert isinstance(edited, Edited)
    assert (edited.text, len(edited.notes)) == ("a = 1\n", 1)
    assert "changed by hand" in edited.notes[0]
    assert toml_text.with_table(touched, PATH, KEYS, TABLE, "mgpu uninstall x").notes


def test_removal_without_a_block_changes_no_text() -> None:
    assert toml_text.without("a = 1\n", PATH) == NotHere()
    assert block.removed("# >>> mgpu install\n") is None


def test_identical_foreign_table_is_left() -> None:
    text = toml_text.rendered(KEYS, TABLE)
    edited = toml_text.with_table(text, PATH, KEYS, TABLE, "mgpu uninstall x")
    assert edited.text == text
    assert "already" in edited.notes[0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a = ", "/etc/x.toml is not valid TOML: "),
        ("a = 1\na = 2\n", "/etc/x.toml is not valid TOML: "),
        ('[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.mgpu]\n', "has plugins."),
        ("plugins = {}\n", 'writes "plugins.'),
        ('[plugins]\n"io.containerd.grpc.v1.cri".containerd = {runtimes = {}}\n', 'writes "plugins.'),
        ("plugins = 1\n", 'writes "plugins.'),
    ],
)
def test_refused_in_one_line(text: str, words: str) -> None:
    with pytest.raises(Refusal) as refused:
        add(text)
    assert words in refused.value.line()
    assert "nothing was changed" in refused.value.line()


def test_values_are_read_back() -> None:
    for value in ['q"uo\\te', "tab\tnul\x00del\x7f", "ü€😀", True, -3, [], ["one"], ["a", "b"]]:
        text = toml_text.rendered(["a b", "c"], {"v": value})
        assert tomllib.loads(text) == {"a b": {"c": {"v": value}}}
