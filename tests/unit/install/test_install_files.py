"""Files are replaced whole, keep what they are, and all of them or none."""

import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from install import apply, containerd, crio, docker, systemd
from install.change import Change, Plan
from oci_specs.refusal import Refusal
from tests.support.commands import attempt, run
from tests.unit.install_support import PARTS, install, intent, tree, uninstall

BEFORE = '{"debug": true}\n'


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "daemon.json"
    path.write_text(BEFORE)
    return path


def test_mode_and_owner_are_kept(tmp_path: Path, config: Path) -> None:
    config.chmod(0o640)
    if os.geteuid() == 0:
        os.chown(config, 12, 34)
    was = config.stat()
    for done in (install, uninstall):
        with config.open() as reader:
            before = config.read_text()
            done(docker.ENGINE, intent(tmp_path, config))
            assert reader.read() == before, "it was written in place: a reader could see half of it"
        now = config.stat()
        assert (now.st_mode, now.st_uid, now.st_gid) == (was.st_mode, was.st_uid, was.st_gid)


def test_symbolic_link_stays_a_link(tmp_path: Path, config: Path) -> None:
    link = tmp_path / "etc" / "daemon.json"
    link.parent.mkdir()
    link.symlink_to("../daemon.json")
    install(docker.ENGINE, intent(tmp_path, link))
    assert link.is_symlink()
    assert "mgpu" in config.read_text()
    uninstall(docker.ENGINE, intent(tmp_path, link))
    assert (link.readlink(), config.read_text()) == (Path("../daemon.json"), BEFORE)


@pytest.mark.parametrize("kind", ["loop", "dangling", "folder", "pipe", "latin"])
def test_install_refuses_paths_that_are_no_plain_file(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "daemon.json"
    match kind:
        case "loop":
            path.symlink_to("daemon.json")
        case "dangling":
            path.symlink_to("nowhere")
        case "folder":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case "latin":
            path.write_bytes(b'{"a": "\xe4"}')
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(Refusal, match=rf"^mgpu: {path}: [^\n]*nothing was changed$"):
        install(docker.ENGINE, intent(tmp_path, path))
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="chattr is root's")
@pytest.mark.parametrize("what", ["file", "folder"])
def test_immutable_place_is_one_line_and_no_change(tmp_path: Path, config: Path, what: str) -> None:
    place = config if what == "file" else tmp_path
    if attempt("chattr", "+i", place).status != 0:
        pytest.skip("this file system has no immutable files")
    try:
        with pytest.raises(Refusal, match=r"(?i)not permitted.*nothing was changed"):
            install(docker.ENGINE, intent(tmp_path, config))
        assert tree(tmp_path) == {"daemon.json": BEFORE.encode()}
    finally:
        run("chattr", "-i", place)


def test_failed_plan_is_undone(tmp_path: Path, config: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    before = tree(tmp_path)
    plan = Plan(
        (
            Change(path=config, before=BEFORE.encode(), after=b"{}"),
            Change(path=tmp_path / "new" / "file", before=None, after=b"x"),
            # Renaming a file onto a folder fails, after the two others were made.
            Change(path=tmp_path / "full", before=None, after=b"x"),
        )
    )
    with pytest.raises(Refusal, match="full"):
        apply.apply(plan)
    assert tree(tmp_path) == before
    assert not (tmp_path / "new").exists()


def test_backup_is_for_the_same_eyes(tmp_path: Path, config: Path) -> None:
    config.chmod(0o600)
    install(docker.ENGINE, intent(tmp_path, config))
    assert stat.S_IMODE((tmp_path / "daemon.json.mgpu-backup").stat().st_mode) == 0o600


def test_install_leaves_no_temporary_files(tmp_path: Path, config: Path) -> None:
    install(docker.ENGINE, intent(tmp_path, config))
    assert sorted(tree(tmp_path)) == ["daemon.json", "daemon.json.mgpu-backup"]
    assert (tmp_path / "daemon.json.mgpu-backup").read_text() == BEFORE


def test_foreign_shim_is_left(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    shim = tmp_path / "bin" / "containerd-shim-mgpu-v2"
    shim.write_text("theirs")
    with pytest.raises(Refusal, match="no symbolic link"):
        install(containerd.ENGINE, intent(tmp_path, tmp_path / "config.toml"))
    assert tree(tmp_path) == {"bin/containerd-shim-mgpu-v2": b"theirs"}


def test_unit_changed_by_hand_is_kept_on_uninstall_and_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(systemd, "PRESETS", tmp_path / "presets")
    intended = intent(tmp_path, tmp_path / "units")
    install(systemd.ENGINE, intended)
    assert install(systemd.ENGINE, intended).changes == ()
    unit = tmp_path / "units" / "mgpud.service"
    edited = unit.read_text() + "# by hand\n"
    unit.write_text(edited)
    newer = replace(PARTS, mgpud="/opt/mgpu2/bin/mgpud")
    with pytest.raises(Refusal, match="was changed by hand"):
        install(systemd.ENGINE, intended, newer)
    plan = uninstall(systemd.ENGINE, intended)
    assert "is kept as" in plan.notes[0]
    assert tree(tmp_path) == {"units/mgpud.service.mgpu-backup": edited.encode()}


@pytest.mark.parametrize(("prefix", "told"), [("/opt/mgpu", False), ("/root/mgpu", True), ("/tmp/x", True)])
def test_prefix_that_the_units_do_not_see_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prefix: str, told: bool
) -> None:
    monkeypatch.setattr(systemd, "PRESETS", tmp_path / "presets")
    parts = replace(PARTS, holder=f"{prefix}/libexec/mgpu/mgpu-holder")
    for _ in range(2):
        plan = install(systemd.ENGINE, intent(tmp_path, tmp_path / "units"), parts)
        assert any("does not see" in note for note in plan.notes) == told


def test_uninstall_removes_links_of_enabled_units(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(systemd, "PRESETS", tmp_path / "presets")
    intended = intent(tmp_path, tmp_path / "units")
    install(systemd.ENGINE, intended)
    wants = tmp_path / "units" / "multi-user.target.wants"
    wants.mkdir()
    for name in ("mgpud.service", "other.service"):
        (wants / name).symlink_to(f"/etc/systemd/system/{name}")
    assert install(systemd.ENGINE, intended).changes == ()
    uninstall(systemd.ENGINE, intended)
    assert tree(tmp_path) == {
        "units/multi-user.target.wants/other.service": "/etc/systemd/system/other.service"
    }


def test_fresh_file_has_the_mode_it_should_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        install(docker.ENGINE, intent(tmp_path, tmp_path / "d" / "daemon.json"))
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "d" / "daemon.json").stat().st_mode) == 0o644


class PowerCutError(BaseException):
    """Nothing runs after it, as nothing does without power."""


def _cut(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Power goes as the file of that name would take its place."""
    rename = Path.rename

    def cut(self: Path, target: Path) -> Path:
        if target.name == name:
            raise PowerCutError
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", cut)
    monkeypatch.setattr(Path, "unlink", lambda self, missing_ok=False: None)
    monkeypatch.setattr(Path, "rmdir", lambda self: None)


def test_what_a_cut_left_behind_goes_with_the_next_run(
    tmp_path: Path, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as dark:
        _cut(dark, "daemon.json")
        with pytest.raises(PowerCutError):
            install(docker.ENGINE, intent(tmp_path, config))
    assert ".daemon.json.mgpu-new" in tree(tmp_path)
    assert config.read_text() == BEFORE
    install(docker.ENGINE, intent(tmp_path, config))
    uninstall(docker.ENGINE, intent(tmp_path, config))
    assert tree(tmp_path) == {"daemon.json": BEFORE.encode()}


def test_no_half_written_file_is_where_crio_reads_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "crio.conf.d" / "99-mgpu.conf"
    own.parent.mkdir()
    with monkeypatch.context() as dark:
        _cut(dark, own.name)
        with pytest.raises(PowerCutError):
            install(crio.ENGINE, intent(tmp_path, own))
    assert sorted(tree(tmp_path)) == [".99-mgpu.conf.mgpu-new"]


def test_each_change_is_on_the_disk_before_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    rename, sync = Path.rename, os.fsync

    def renamed(self: Path, target: Path) -> Path:
        told.append(f"{target.name} is in place")
        return rename(self, target)

    def synced(descriptor: int) -> None:
        told.append(f"{Path(os.readlink(f'/proc/self/fd/{descriptor}')).name} is synced")
        sync(descriptor)

    monkeypatch.setattr(Path, "rename", renamed)
    monkeypatch.setattr(os, "fsync", synced)
    (tmp_path / "etc").mkdir()
    changes = [Change(path=tmp_path / "etc" / name, before=None, after=b"x") for name in ("one", "two")]
    apply.apply(Plan(tuple(changes)))
    assert told == [
        ".one.mgpu-new is synced",
        ".two.mgpu-new is synced",
        "one is in place",
        "etc is synced",
        "two is in place",
        "etc is synced",
    ]
