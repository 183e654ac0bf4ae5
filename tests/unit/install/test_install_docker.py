import json
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given

from install import docker
from install.edit import Edited
from oci_specs.refusal import Refusal
from tests.unit.install_support import ON_DISK, PARTS, install, intent, json_texts, tree, uninstall

PATH = Path("/etc/docker/daemon.json")
RUNTIME = "/opt/mgpu/libexec/mgpu/mgpu-runtime"
ENTRY = {"path": RUNTIME}


def add(text: str | None) -> str:
    edited = docker.added(text, PATH, RUNTIME)
    assert edited.text is not None
    return edited.text


@given(json_texts())
def test_install_adds_the_runtime_only(text: str) -> None:
    document = json.loads(text)
    after = json.loads(add(text))
    assert after.pop("runtimes") == {**document.pop("runtimes", {}), "mgpu": ENTRY}
    assert list(after.items()) == list(document.items())


@given(json_texts())
def test_removal_keeps_all_other_settings(text: str) -> None:
    document = json.loads(text)
    removed = docker.removed(add(text), PATH)
    assert isinstance(removed, Edited)
    left = json.loads(removed.text or "{}")
    assert {**left, "runtimes": left.get("runtimes", {})} == {
        **document,
        "runtimes": document.get("runtimes", {}),
    }


@given(json_texts())
def test_adding_twice_equals_once(text: str) -> None:
    assert add(add(text)) == add(text)


@ON_DISK
@given(json_texts())
def test_uninstall_restores_every_byte(text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "daemon.json")
        path.write_text(text)
        intended = intent(Path(folder), path)
        install(docker.ENGINE, intended)
        assert json.loads(path.read_text())["runtimes"]["mgpu"] == ENTRY
        assert install(docker.ENGINE, intended).changes == ()
        uninstall(docker.ENGINE, intended)
        assert tree(Path(folder)) == {"daemon.json": text.encode()}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            '{\n  "debug": true,\n  "runtimes": {\n    "kata": {"path": "/k"}\n  }\n}\n',
            '{\n  "debug": true,\n  "runtimes": {\n    "kata": {"path": "/k"},\n'
            f'    "mgpu": {{\n      "path": "{RUNTIME}"\n    }}\n  }}\n}}\n',
        ),
        ('{"debug":true}', f'{{"debug":true, "runtimes": {{"mgpu": {{"path": "{RUNTIME}"}}}}}}'),
        (
            '{\n\t"debug": true\n}',
            f'{{\n\t"debug": true,\n\t"runtimes": {{\n\t\t"mgpu": {{\n\t\t\t"path": "{RUNTIME}"\n\t\t}}\n\t}}\n}}',
        ),
    ],
)
def test_layout_is_kept(before: str, after: str) -> None:
    assert add(before) == after


def test_file_that_was_not_there_goes_again(tmp_path: Path) -> None:
    intended = intent(tmp_path, tmp_path / "docker" / "daemon.json")
    install(docker.ENGINE, intended)
    assert json.loads((tmp_path / "docker" / "daemon.json").read_text()) == {"runtimes": {"mgpu": ENTRY}}
    uninstall(docker.ENGINE, intended)
    assert tree(tmp_path) == {}


def test_install_with_another_prefix_replaces_the_path(tmp_path: Path) -> None:
    path = tmp_path / "daemon.json"
    path.write_text('{"debug": true, "runtimes": {}}')
    intended = intent(tmp_path, path)
    install(docker.ENGINE, intended)
    newer = replace(PARTS, runtime="/opt/mgpu2/libexec/mgpu/mgpu-runtime")
    assert install(docker.ENGINE, intended, newer).changes
    assert json.loads(path.read_text())["runtimes"]["mgpu"]["path"] == newer.runtime
    uninstall(docker.ENGINE, intended, newer)
    assert tree(tmp_path) == {"daemon.json": b'{"debug": true, "runtimes": {}}'}


def test_entry_by_hand_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "daemon.json"
    text = '{"debug": true, "runtimes": {"mgpu": {"path": "/tmp/mgpu/bin/mgpu-runtime"}}}'
    path.write_text(text)
    intended = intent(tmp_path, path)
    install(docker.ENGINE, intended)
    assert json.loads(path.read_text())["runtimes"]["mgpu"] == ENTRY
    uninstall(docker.ENGINE, intended)
    assert tree(tmp_path) == {"daemon.json": text.encode()}


def test_change_by_hand_survives_and_is_said(tmp_path: Path) -> None:
    path = tmp_path / "daemon.json"
    path.write_text('{\n  "debug": true\n}\n')
    intended = intent(tmp_path, path)
    install(docker.ENGINE, intended)
    path.write_text(path.read_text().replace('"debug": true', '"debug": false'))
    plan = uninstall(docker.ENGINE, intended)
    assert path.read_text() == '{\n  "debug": false\n}\n'
    assert "was changed since mgpu install" in plan.notes[0]
    assert (tmp_path / "daemon.json.mgpu-backup").read_text() == '{\n  "debug": true\n}\n'


def test_default_runtime_is_kept_and_reported() -> None:
    edited = docker.added(
        '{"default-runtime": "nvidia", "runtimes": {"nvidia": {"path": "n"}}}', PATH, RUNTIME
    )
    assert json.loads(edited.text or "")["default-runtime"] == "nvidia"
    assert edited.notes == ('the default runtime is "nvidia", and stays it: use --runtime=mgpu',)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is not valid JSON"),
        ('{"a": 1, "a": 2}', '"a" stands there twice'),
        ('{"a": NaN}', "NaN is no JSON value"),
        ("[]", "is not a JSON object"),
        ('{"runtimes": []}', '"runtimes" is not an object'),
        ('{"runtimes": {"mgpu": {"path": "/usr/bin/other"}}}', 'has a runtime "mgpu" already'),
    ],
)
def test_refused_in_one_line(text: str, words: str) -> None:
    with pytest.raises(Refusal, match=r"nothing was changed") as refused:
        add(text)
    assert words in refused.value.line()


def test_uninstall_refuses_while_mgpu_is_the_default(tmp_path: Path) -> None:
    path = tmp_path / "daemon.json"
    path.write_text('{"default-runtime": "mgpu"}')
    intended = intent(tmp_path, path)
    install(docker.ENGINE, intended)
    assert install(docker.ENGINE, intended, replace(PARTS, runtime="/opt/2/mgpu-runtime")).changes
    before = tree(tmp_path)
    with pytest.raises(Refusal, match="default runtime"):
        uninstall(docker.ENGINE, intended)
    assert tree(tmp_path) == before
