import fnmatch
import json
import tempfile
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from install import annotation_lists, containerd
from install.change import Plan
from oci_specs import vocabulary
from oci_specs.refusal import Refusal
from tests.unit.install_support import ON_DISK, PARTS, install, intent, toml_texts, tree, uninstall

V2 = "io.containerd.grpc.v1.cri"
V3 = "io.containerd.cri.v1.runtime"
SYSTEMD = f"""\
version = 2
[plugins."{V2}".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
  base_runtime_spec = "/etc/containerd/base.json"
  [plugins."{V2}".containerd.runtimes.runc.options]
    SystemdCgroup = true
    Root = "/run/other"
"""


def handler(text: str, cri: str = V2) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads(text)["plugins"][cri]["containerd"]["runtimes"]["mgpu"]
    return found


def installed(folder: Path, text: str, **chosen: Any) -> tuple[str, Plan]:
    config = folder / "config.toml"
    config.write_text(text)
    plan = install(containerd.ENGINE, intent(folder, config, **chosen))
    return config.read_text(), plan


@ON_DISK
@given(toml_texts(prefix=f'[plugins."{V2}".containerd', version=2))
def test_uninstall_restores_every_byte(text: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        after, _ = installed(folder, text)
        assert handler(after)["runtime_type"] == "io.containerd.mgpu.v2"
        intended = intent(folder, folder / "config.toml")
        assert install(containerd.ENGINE, intended).changes == ()
        uninstall(containerd.ENGINE, intended)
        assert tree(folder) == {"config.toml": text.encode()}


@pytest.mark.parametrize(
    ("text", "cri"),
    [
        ("", "cri"),
        ("version = 1\n", "cri"),
        ("version = 2\n", V2),
        ("version = 3\n", V3),
        ("version = 4\n", V3),
    ],
)
def test_plugin_has_the_name_of_the_files_version(tmp_path: Path, text: str, cri: str) -> None:
    after, _ = installed(tmp_path, text)
    assert handler(after, cri)["runtime_type"] == "io.containerd.mgpu.v2"
    assert (tmp_path / "bin" / "containerd-shim-mgpu-v2").readlink() == Path(PARTS.shim)


def test_missing_file_gets_a_version_every_containerd_reads(tmp_path: Path) -> None:
    intended = intent(tmp_path, tmp_path / "containerd" / "config.toml")
    install(containerd.ENGINE, intended)
    after = (tmp_path / "containerd" / "config.toml").read_text()
    assert (tomllib.loads(after)["version"], "options" in handler(after)) == (2, False)
    uninstall(containerd.ENGINE, intended)
    assert tree(tmp_path) == {}


def test_only_annotations_of_the_vocabulary_are_handed_on(tmp_path: Path) -> None:
    table = handler(installed(tmp_path, "version = 2\n")[0])
    assert table["pod_annotations"] == table["container_annotations"] == annotation_lists.patterns()
    for key in vocabulary.KEYS:
        if key.source == vocabulary.ANNOTATION:
            assert passes(key.name, table["pod_annotations"]), key.name
    assert passes("mgpu.dev/memory-mb", table["pod_annotations"]), (
        "a misspelt key has to be refused, not lost"
    )
    assert not passes("katalyst.kubewharf.io/other", table["pod_annotations"])


def passes(name: str, patterns: list[str]) -> bool:
    """As Go's path.Match: part by part, since "*" does not cross a slash."""
    parts = name.split("/")
    return any(
        len(parts) == len(pattern.split("/"))
        and all(fnmatch.fnmatchcase(part, own) for part, own in zip(parts, pattern.split("/"), strict=True))
        for pattern in patterns
    )


def test_systemd_cgroups_choose_the_binary_route_with_a_reason(tmp_path: Path) -> None:
    after, plan = installed(tmp_path, SYSTEMD)
    table = handler(after)
    assert table["runtime_type"] == "io.containerd.runc.v2"
    assert table["options"] == {"BinaryName": PARTS.runtime, "SystemdCgroup": True, "Root": "/run/other"}
    assert table["base_runtime_spec"] == "/etc/containerd/base.json"
    assert any("SystemdCgroup is an option" in note for note in plan.notes)


@pytest.mark.parametrize("text", [SYSTEMD, SYSTEMD.replace("SystemdCgroup = true", "")])
def test_pod_keeps_what_its_handler_said_of_it(tmp_path: Path, text: str) -> None:
    """The keys of containerd 2.2's Runtime (internal/cri/config) that are not about the runtime itself."""
    said = {
        "base_runtime_spec": "/etc/containerd/base.json",
        "cgroup_writable": True,
        "cni_conf_dir": "/etc/cni/other",
        "cni_max_conf_num": 2,
        "disable_pause_image_pull": True,
        "io_type": "streaming",
        "privileged_without_host_devices": True,
        "privileged_without_host_devices_all_devices_allowed": True,
        "sandboxer": "shim",
        "snapshotter": "zfs",
    }
    lines = [f"  {key} = {json.dumps(value)}\n" for key, value in said.items() if key not in text]
    at = text.index("  base_runtime_spec")
    table = handler(installed(tmp_path, text[:at] + "".join(lines) + text[at:])[0])
    assert {key: table.get(key) for key in said} == said


def test_default_handler_is_named_where_none_was(tmp_path: Path) -> None:
    after, _ = installed(tmp_path, "version = 2\n")
    handlers = tomllib.loads(after)["plugins"][V2]["containerd"]["runtimes"]
    assert handlers["runc"] == {"runtime_type": "io.containerd.runc.v2"}
    assert "runtimes.runc]" not in installed(tmp_path, SYSTEMD)[0].removeprefix(SYSTEMD)


def test_default_runtimes_options_count(tmp_path: Path) -> None:
    text = SYSTEMD.replace("runtimes.runc", "runtimes.mine")
    assert handler(installed(tmp_path, text)[0])["runtime_type"] == "io.containerd.mgpu.v2"
    (tmp_path / "config.toml.mgpu-backup").unlink()
    named = text.replace(
        "[plugins", f'[plugins."{V2}".containerd]\ndefault_runtime_name = "mine"\n[plugins', 1
    )
    after, plan = installed(tmp_path, named)
    assert handler(after)["runtime_type"] == "io.containerd.runc.v2"
    assert 'the default handler is "mine", and stays it' in plan.notes


def test_shim_route_is_refused_with_systemd_cgroups(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match=r"SystemdCgroup = true.*leave --route out"):
        installed(tmp_path, SYSTEMD, route="shim")
    assert tree(tmp_path) == {"config.toml": SYSTEMD.encode()}


def test_binary_may_be_asked_for(tmp_path: Path) -> None:
    table = handler(installed(tmp_path, "version = 2\n", route="runc")[0])
    assert table["options"] == {"BinaryName": PARTS.runtime}


def test_containerd_1_handler_goes_to_the_last_cri_file(tmp_path: Path) -> None:
    other = tmp_path / "conf.d" / "50-other.toml"
    other.parent.mkdir()
    other.write_text(SYSTEMD)
    (tmp_path / "conf.d" / "60-none.toml").write_text("version = 2\noom_score = 1\n")
    main = f'version = 2\nimports = ["conf.d/*.toml"]\n[plugins."{V2}"]\nsandbox_image = "x"\n'
    after, _ = installed(tmp_path, main)
    assert after == main
    assert handler(other.read_text())["options"]["SystemdCgroup"] is True
    uninstall(containerd.ENGINE, intent(tmp_path, tmp_path / "config.toml"))
    assert other.read_text() == SYSTEMD


@pytest.mark.parametrize(("major", "systemd"), [(1, False), (2, True)])
def test_systemd_cgroups_of_another_file_count_where_files_are_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, major: int, systemd: bool
) -> None:
    monkeypatch.setattr(containerd, "major", lambda: major)
    (tmp_path / "other.toml").write_text(
        f'version = 2\n[plugins."{V2}".containerd.runtimes.kata]\nruntime_type = "io.containerd.kata.v2"\n'
    )
    after, _ = installed(tmp_path, f'imports = ["other.toml"]\n{SYSTEMD}')
    assert after == f'imports = ["other.toml"]\n{SYSTEMD}'
    table = handler((tmp_path / "other.toml").read_text())
    assert table.get("options", {}).get("SystemdCgroup", False) is systemd


def test_version_1_is_refused_where_containerd_reads_no_handler_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(containerd, "major", lambda: 2)
    with pytest.raises(Refusal, match="of version 1, and of that containerd 2 reads nothing"):
        installed(tmp_path, "oom_score = 0\n")
    assert tree(tmp_path) == {"config.toml": b"oom_score = 0\n"}


def test_file_of_an_older_version_counts_in_a_newer_configuration(tmp_path: Path) -> None:
    (tmp_path / "other.toml").write_text(SYSTEMD)
    after, _ = installed(tmp_path, 'version = 3\nimports = ["other.toml"]\n')
    assert handler(after, V3)["options"]["SystemdCgroup"] is True


def test_block_that_no_longer_decides_moves(tmp_path: Path) -> None:
    main = 'version = 2\nimports = ["conf.d/*.toml"]\n'
    installed(tmp_path, main)
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d" / "late.toml").write_text(f'version = 2\n[plugins."{V2}"]\n')
    intended = intent(tmp_path, tmp_path / "config.toml")
    install(containerd.ENGINE, intended)
    assert (tmp_path / "config.toml").read_text() == main
    assert "mgpu" in (tmp_path / "conf.d" / "late.toml").read_text()


def test_from_2_0_on_it_is_a_file_of_its_own_where_those_are_read(tmp_path: Path) -> None:
    main = f'version = 3\nimports = ["{tmp_path}/conf.d/*.toml"]\n'
    after, _ = installed(tmp_path, main)
    assert after == main
    own = tmp_path / "conf.d" / "99-mgpu.toml"
    assert tomllib.loads(own.read_text())["version"] == 3
    assert handler(own.read_text(), V3)["runtime_type"] == "io.containerd.mgpu.v2"
    intended = intent(tmp_path, tmp_path / "config.toml")
    assert install(containerd.ENGINE, intended).changes == ()
    uninstall(containerd.ENGINE, intended)
    assert tree(tmp_path) == {"config.toml": main.encode()}


def test_uninstall_refuses_while_mgpu_is_the_default(tmp_path: Path) -> None:
    text = f'version = 2\n[plugins."{V2}".containerd]\ndefault_runtime_name = "mgpu"\n'
    after, _ = installed(tmp_path, text)
    with pytest.raises(Refusal, match="default_runtime_name"):
        uninstall(containerd.ENGINE, intent(tmp_path, tmp_path / "config.toml"))
    assert (tmp_path / "config.toml").read_text() == after


def test_annotations_of_the_default_handler_are_passed_on(tmp_path: Path) -> None:
    text = (
        f'version = 2\n[plugins."{V2}".containerd.runtimes.runc]\n'
        'pod_annotations = ["x.y/*", "mgpu.dev/*"]\n'
    )
    table = handler(installed(tmp_path, text)[0])
    assert table["pod_annotations"] == [*annotation_lists.patterns(), "x.y/*"]
    assert table["container_annotations"] == annotation_lists.patterns()


@pytest.mark.parametrize(("version", "name"), [(2, "cri"), (3, V2)])
def test_disabled_plugin_is_said(tmp_path: Path, version: int, name: str) -> None:
    _, plan = installed(tmp_path, f'version = {version}\ndisabled_plugins = ["{name}"]\n')
    assert any(f"disables the plugin {name}" in note for note in plan.notes)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("version = ", "is not valid TOML"),
        ('version = "2"\n', '"version" is no number'),
        ("imports = 3\n", '"imports" is not a list'),
        ('imports = ["missing.toml"]\n', "which is not there"),
        (f'version = 2\n[plugins."{V2}".containerd.runtimes.mgpu]\nruntime_type = "x"\n', "already"),
        ("version = 2\nplugins = {}\n", "in a form that no table can be added to"),
    ],
)
def test_impossible_edit_is_one_line_and_no_change(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(Refusal, match="nothing was changed") as refused:
        installed(tmp_path, text)
    assert words in refused.value.line()
    assert tree(tmp_path) == {"config.toml": text.encode()}
