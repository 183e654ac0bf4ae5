"""podman's precreate hook: one file of ours, and podman's configuration that names its folder."""

import json
import os
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from install import podman
from install.engine import Intent
from mgpu_cli.main import main
from oci_specs.refusal import Refusal
from tests.unit.install_support import PARTS, install, intent, tree, uninstall

USUAL = ["/usr/share/containers/oci/hooks.d"]


@pytest.fixture
def etc(tmp_path: Path, plain_prefix: None, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An /etc for podman and for mgpu."""
    monkeypatch.setattr(podman, "HOOK", tmp_path / "mgpu" / "hooks.d" / "zz-mgpu.json")
    monkeypatch.setattr(podman, "PACKAGED", tmp_path / "usr" / "containers.conf")
    (tmp_path / "containers.conf.d").mkdir()
    return tmp_path


def drop_in(etc: Path) -> Path:
    return etc / "containers.conf.d" / "99-mgpu.conf"


def by_hook(etc: Path, hooks: bool | None = True) -> Intent:
    return intent(etc, drop_in(etc), hooks=hooks)


def hook_dirs(etc: Path) -> list[str]:
    found: list[str] = tomllib.loads(drop_in(etc).read_text())["engine"]["hooks_dir"]
    return found


def test_hook_follows_oci_hooks_and_its_folder_is_configured(etc: Path) -> None:
    install(podman.ENGINE, by_hook(etc))
    assert json.loads(podman.HOOK.read_text()) == {
        "version": "1.0.0",
        "hook": {"path": PARTS.runtime, "args": ["mgpu-runtime", "precreate"], "timeout": 30},
        "when": {"always": True},
        "stages": ["precreate"],
    }
    assert tomllib.loads(drop_in(etc).read_text()) == {
        "engine": {"hooks_dir": [*USUAL, str(podman.HOOK.parent)]}
    }


@pytest.mark.parametrize("hooks", [True, None])
def test_repeated_hook_install_changes_nothing_and_uninstall_removes_all(
    etc: Path, hooks: bool | None
) -> None:
    install(podman.ENGINE, by_hook(etc))
    assert install(podman.ENGINE, by_hook(etc, hooks)).changes == ()
    uninstall(podman.ENGINE, by_hook(etc, None))
    assert tree(etc) == {}
    assert uninstall(podman.ENGINE, by_hook(etc, hooks)).changes == ()


def test_podman_hook_and_runtime_replace_each_other(etc: Path) -> None:
    install(podman.ENGINE, by_hook(etc, None))
    by_runtime = tree(etc)
    install(podman.ENGINE, by_hook(etc))
    assert "runtimes" not in drop_in(etc).read_text()
    install(podman.ENGINE, by_hook(etc, False))
    assert tree(etc) == by_runtime


def test_folders_that_were_named_before_stay_named(etc: Path) -> None:
    (etc / "usr").mkdir()
    podman.PACKAGED.write_text('[engine]\nhooks_dir = ["/packaged"]\n')
    install(podman.ENGINE, by_hook(etc))
    assert hook_dirs(etc) == ["/packaged", str(podman.HOOK.parent)]
    (etc / "containers.conf").write_text('[engine]\nhooks_dir = ["/mine", "/more"]\n')
    (etc / "containers.conf.d" / "10-none.conf").write_text("[containers]\n")
    install(podman.ENGINE, by_hook(etc))
    assert hook_dirs(etc) == ["/mine", "/more", str(podman.HOOK.parent)]
    (etc / "containers.conf.d" / "10-none.conf").write_text('[engine]\nhooks_dir = ["/last"]\n')
    install(podman.ENGINE, by_hook(etc))
    assert hook_dirs(etc) == ["/last", str(podman.HOOK.parent)]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("containers.conf.d/zz.conf", '[engine]\nhooks_dir = ["/x"]\n', "reads it after"),
        ("containers.conf.d/10.conf", "[engine\n", "is not valid TOML"),
        ("containers.conf", "[engine]\nhooks_dir = 3\n", "is no list of texts"),
        ("containers.conf.d/99-mgpu.conf", '[engine]\nruntime = "crun"\n', "not what mgpu install writes"),
        ("mgpu/hooks.d/zz-mgpu.json", "{}\n", "not what mgpu install writes"),
    ],
)
def test_refused_in_one_line_with_nothing_changed(etc: Path, name: str, text: str, said: str) -> None:
    (etc / name).parent.mkdir(parents=True, exist_ok=True)
    (etc / name).write_text(text)
    before = tree(etc)
    with pytest.raises(Refusal, match=rf"{said}[^\n]*nothing was changed$"):
        install(podman.ENGINE, by_hook(etc))
    assert tree(etc) == before


def test_hook_that_was_changed_by_hand_is_kept_beside(etc: Path) -> None:
    install(podman.ENGINE, by_hook(etc))
    edited = podman.HOOK.read_text().replace('"always": true', '"hasBindMounts": true')
    podman.HOOK.write_text(edited)
    with pytest.raises(Refusal, match="move it away"):
        install(podman.ENGINE, by_hook(etc))
    assert "is kept as" in uninstall(podman.ENGINE, by_hook(etc)).notes[0]
    assert tree(etc) == {"mgpu/hooks.d/zz-mgpu.json.mgpu-backup": edited.encode()}


def test_hook_of_another_installation_is_replaced(etc: Path) -> None:
    install(podman.ENGINE, by_hook(etc), replace(PARTS, runtime="/opt/older/mgpu-runtime"))
    install(podman.ENGINE, by_hook(etc))
    assert json.loads(podman.HOOK.read_text())["hook"]["path"] == PARTS.runtime


def test_hook_command_is_the_precreate_program(etc: Path) -> None:
    def said(*args: str) -> tuple[int, str]:
        done = CliRunner().invoke(main, ["install", "podman", "--config", str(drop_in(etc)), *args])
        return done.exit_code, done.output

    status, shown = said("--hooks", "--dry-run")
    assert (status, f"+++ {podman.HOOK}\n" in shown) == (0, True), shown
    assert tree(etc) == {}
    status, shown = said("--hooks", "--output", str(etc / "out"))
    assert status == 0, shown
    assert os.path.exists(f"{etc}/out{podman.HOOK}")
    done = CliRunner().invoke(main, ["install", "docker", "--hooks", "--dry-run"])
    assert (done.exit_code, "--hooks is podman's" in done.stderr) == (2, True)
