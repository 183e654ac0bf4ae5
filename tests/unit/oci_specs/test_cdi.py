"""CDI specs: reading, conflicts, and what becomes of their edits."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from oci_specs.cdi import Registry
from oci_specs.refusal import Refusal

KIND = "nvidia.com/gpu"
# In the form that `nvidia-ctk cdi generate` writes, with nodes that every host has.
CTK_YAML = """---
cdiVersion: 0.5.0
kind: nvidia.com/gpu
devices:
- name: "0"
  containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
      hostPath: /dev/null
- name: "1"
  containerEdits:
    deviceNodes:
    - path: /dev/nvidia1
      hostPath: /dev/zero
      fileMode: 438
      permissions: rw
- name: all
  containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
      hostPath: /dev/null
    - path: /dev/nvidia1
      hostPath: /dev/zero
containerEdits:
  env:
  - NVIDIA_VISIBLE_DEVICES=void
  deviceNodes:
  - path: /dev/null
  - path: /dev/nvidia-uvm
    type: c
    major: 511
    minor: 0
  hooks:
  - hookName: createContainer
    path: /usr/bin/nvidia-ctk
    args: [nvidia-ctk, hook, update-ldcache, --folder, /usr/lib]
  mounts:
  - hostPath: /usr/lib/libcuda.so.535
    containerPath: /usr/lib/libcuda.so.535
    options: [ro, nosuid, nodev, bind]
  additionalGids: [44]
"""


def write(directory: Path, name: str, content: Any) -> Path:
    directory.mkdir(exist_ok=True)
    path = directory / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def spec(name: str = "0", **edits: Any) -> dict[str, Any]:
    return {"cdiVersion": "0.6.0", "kind": KIND, "devices": [{"name": name, "containerEdits": edits}]}


def load(*directories: Path) -> Registry:
    return Registry.load([str(directory) for directory in directories])


def test_nvidia_ctk_spec_is_read(tmp_path: Path) -> None:
    write(tmp_path, "nvidia.yaml", CTK_YAML)
    registry = load(tmp_path)
    assert registry.names(KIND) == ["0", "1", "all"]
    assert registry.edits(KIND, ["1", "0", "1"]).to_json() == {
        "devices": [
            {"path": "/dev/null", "type": "c", "major": 1, "minor": 3},
            {"path": "/dev/nvidia-uvm", "type": "c", "major": 511, "minor": 0},
            {
                "path": "/dev/nvidia1",
                "type": "c",
                "major": 1,
                "minor": 5,
                "fileMode": 438,
                "hostPath": "/dev/zero",
            },
            {"path": "/dev/nvidia0", "type": "c", "major": 1, "minor": 3, "hostPath": "/dev/null"},
        ],
        "mounts": [
            {
                "source": "/usr/lib/libcuda.so.535",
                "destination": "/usr/lib/libcuda.so.535",
                "type": "bind",
                "options": ["ro", "nosuid", "nodev", "bind"],
            }
        ],
        "env": ["NVIDIA_VISIBLE_DEVICES=void"],
        "hooks": {
            "createContainer": [
                {
                    "path": "/usr/bin/nvidia-ctk",
                    "args": ["nvidia-ctk", "hook", "update-ldcache", "--folder", "/usr/lib"],
                }
            ]
        },
    }


def test_edits_do_not_share_state(tmp_path: Path) -> None:
    write(tmp_path, "nvidia.yaml", CTK_YAML)
    registry = load(tmp_path)
    first = registry.edits(KIND, ["0"])
    first.env.append("A=b")
    first.devices[0]["path"] = "/elsewhere"
    first.mounts[0]["source"] = "/elsewhere"
    assert registry.edits(KIND, ["0"]).to_json() == load(tmp_path).edits(KIND, ["0"]).to_json()


def test_card_is_found_by_its_node(tmp_path: Path) -> None:
    write(tmp_path, "nvidia.yaml", CTK_YAML)
    write(
        tmp_path,
        "uuid.json",
        spec("GPU-1", deviceNodes=[{"path": "/dev/nvidia1"}, {"path": "/dev/nvidia-uvm"}]),
    )
    assert load(tmp_path).names_with_node(KIND, "/dev/nvidia1") == ["1", "GPU-1"]
    assert load(tmp_path).names_with_node(KIND, "/dev/nvidia2") == []


def test_all_members_become_oci(tmp_path: Path) -> None:
    node = {"path": "/dev/x", "type": "u", "major": 7, "minor": 0, "fileMode": 0o600, "uid": 1, "gid": 0}
    hook = {"hookName": "poststop", "path": "/h", "args": ["h"], "env": ["A=b"], "timeout": 3}
    mount = {"hostPath": "/a", "containerPath": "/b", "type": "tmpfs", "options": []}
    write(tmp_path, "a.json", spec(deviceNodes=[node], hooks=[hook], mounts=[mount], env=["A=b=c"]))
    edits = load(tmp_path).edits(KIND, ["0"])
    assert edits.devices == [node]
    assert edits.hooks == {"poststop": [{"path": "/h", "args": ["h"], "env": ["A=b"], "timeout": 3}]}
    assert edits.mounts == [{"source": "/a", "destination": "/b", "type": "tmpfs"}]
    assert edits.env == ["A=b=c"]


def test_later_directory_wins(tmp_path: Path) -> None:
    write(tmp_path / "etc", "a.json", spec(env=["FROM=etc"]))
    write(tmp_path / "run", "a.json", spec(env=["FROM=run"]))
    missing = tmp_path / "missing"
    assert load(tmp_path / "etc", missing, tmp_path / "run").edits(KIND, ["0"]).env == ["FROM=run"]
    assert load(tmp_path / "run", tmp_path / "etc").edits(KIND, ["0"]).env == ["FROM=etc"]


def test_conflict_in_one_directory(tmp_path: Path) -> None:
    write(tmp_path, "a.json", spec("0", env=["A=1"]))
    write(tmp_path, "b.json", {**spec("0"), "devices": [{"name": "0"}, {"name": "1"}]})
    registry = load(tmp_path)
    assert registry.edits(KIND, ["1"]).to_json() == {"devices": [], "mounts": [], "env": [], "hooks": {}}
    with pytest.raises(Refusal) as refusal:
        registry.edits(KIND, ["0"])
    assert refusal.value.line() == (
        f'mgpu: "{KIND}=0" is defined by both {tmp_path}/a.json and {tmp_path}/b.json; remove one of them'
    )


def test_other_files_are_not_read(tmp_path: Path) -> None:
    write(tmp_path, "broken.txt", "{")
    write(tmp_path, "broken.yml", "{")
    write(tmp_path / "sub", "broken.json", "{")
    assert load(tmp_path).names(KIND) == []


def test_unknown_device(tmp_path: Path) -> None:
    write(tmp_path, "a.json", spec("0"))
    with pytest.raises(Refusal) as refusal:
        load(tmp_path).edits(KIND, ["9\n"])
    assert refusal.value.line() == (
        f'mgpu: no CDI spec defines "{KIND}=9\\n"; run `nvidia-ctk cdi generate`; devices of that kind: 0'
    )


BROKEN: list[tuple[str, Any, str]] = [
    ("a.json", "", "cannot be parsed: Expecting value"),
    ("a.json", "{", "cannot be parsed: Expecting"),
    ("a.json", "[]", "is not an object"),
    ("a.json", "[" * 100_000, "cannot be parsed: maximum recursion depth"),
    ("a.yaml", "a: [", "cannot be parsed: while parsing"),
    (
        "a.yaml",
        "a: !!python/object/apply:os.system [id]",
        "cannot be parsed: could not determine a constructor",
    ),
    ("a.yaml", "\x00", "cannot be parsed: "),
    ("a.yaml", "", "is not an object"),
    ("a.json", {}, '"cdiVersion" is "", not 0.x.y'),
    ("a.json", {**spec(), "cdiVersion": "2.0.0"}, '"cdiVersion" is "2.0.0"'),
    ("a.json", {**spec(), "cdiVersion": 0.5}, '"cdiVersion" is "0.5", not a string'),
    ("a.json", {**spec(), "kind": "gpu"}, '"kind" is "gpu", not vendor/class'),
    ("a.json", {**spec(), "kind": None}, '"kind" is "", not vendor/class'),
    ("a.json", {**spec(), "devices": {}}, '"devices" is "{}", not an array'),
    ("a.json", {**spec(), "devices": ["0"]}, '"devices" is "0", not an array of objects'),
    ("a.json", {**spec(), "devices": [{"name": 0}]}, '"name" is "0", not a string'),
    ("a.json", {**spec(), "devices": [{}]}, 'a device is named ""'),
    ("a.json", {**spec(), "devices": [{"name": "a"}, {"name": "a"}]}, 'two devices are named "a"'),
    ("a.json", spec(env=["A"]), '"env" has "A", not NAME=VALUE'),
    ("a.json", spec(env="A=b"), '"env" is "A=b", not an array'),
    ("a.json", spec(deviceNodes=[{}]), '"path" is "None", not an absolute path'),
    (
        "a.json",
        spec(deviceNodes=[{"path": "/x", "hostPath": "x"}]),
        '"hostPath" is "x", not an absolute path',
    ),
    ("a.json", spec(deviceNodes=[{"path": "/x", "type": "z"}]), '"type" of a device node is "z"'),
    (
        "a.json",
        spec(deviceNodes=[{"path": "/x", "permissions": "rx"}]),
        '"permissions" of a device node are "rx"',
    ),
    ("a.json", spec(deviceNodes=[{"path": "/x", "major": "1"}]), '"major" is "1", not a number'),
    ("a.json", spec(mounts=[{"containerPath": "/x"}]), 'a mount has no "hostPath"'),
    ("a.json", spec(mounts=[{"hostPath": "/x", "containerPath": "x"}]), '"containerPath" is "x"'),
    ("a.json", spec(hooks=[{"path": "/x"}]), '"hookName" is "None"'),
    (
        "a.json",
        spec(hooks=[{"hookName": "createRuntime", "path": "x"}]),
        '"path" is "x", not an absolute path',
    ),
    ("a.json", {**spec(), "containerEdits": {"env": [1]}}, '"env" is "1", not an array of strings'),
]


@pytest.mark.parametrize(("name", "content", "reason"), BROKEN)
def test_broken_spec_is_named_with_its_reason(tmp_path: Path, name: str, content: Any, reason: str) -> None:
    path = write(tmp_path, name, content)
    with pytest.raises(Refusal) as refusal:
        load(tmp_path)
    line = refusal.value.line()
    assert line.startswith(f"mgpu: CDI spec {path}: {reason}")
    assert "\n" not in line
    assert refusal.value.code == "bad-cdi-spec"


def test_unreadable(tmp_path: Path) -> None:
    (tmp_path / "a.json").symlink_to(tmp_path / "nowhere")
    with pytest.raises(Refusal, match=r"a\.json: cannot be read: No such file"):
        load(tmp_path)
    (tmp_path / "a.json").unlink()
    (tmp_path / "b.json").mkdir()
    with pytest.raises(Refusal, match=r"b\.json: cannot be read: Is a directory"):
        load(tmp_path)
    (tmp_path / "b.json").rmdir()
    (tmp_path / "b.json").touch()
    with pytest.raises(Refusal, match=r"b\.json/x: cannot be read: Not a directory"):
        load(tmp_path / "b.json" / "x")


def test_spec_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b'{"kind":"\xff"}')
    with pytest.raises(Refusal, match="cannot be parsed: 'utf-8' codec"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        ({"path": "/dev/no-such-node"}, "the device node /dev/no-such-node: No such file or directory"),
        ({"path": "/x", "hostPath": "/etc/passwd"}, "/etc/passwd is not a device node of type c, b or p"),
        ({"path": "/dev/null", "type": "b"}, "/dev/null is not a device node of type b"),
    ],
)
def test_host_nodes_that_do_not_fit(tmp_path: Path, node: dict[str, Any], reason: str) -> None:
    write(tmp_path, "a.json", spec(deviceNodes=[node]))
    registry = load(tmp_path)
    with pytest.raises(Refusal) as refusal:
        registry.edits(KIND, ["0"])
    assert refusal.value.message == f"CDI spec {tmp_path}/a.json: {reason}"


def test_fifo_needs_no_numbers(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    write(tmp_path, "a.json", spec(deviceNodes=[{"path": str(tmp_path / "pipe")}]))
    assert load(tmp_path).edits(KIND, ["0"]).devices == [
        {"path": str(tmp_path / "pipe"), "type": "p", "major": 0, "minor": 0}
    ]
