"""CRI-O's and podman's drop-ins."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from install import crio, podman
from install.engine import Engine
from oci_specs.refusal import Refusal
from tests.unit.install_support import PARTS, install, intent, tree, uninstall

# CRI-O 1.37's RuntimeHandler (pkg/config), which older versions have a part of: what a handler may say.
CRIO_HANDLER = {
    "runtime_path": str,
    "runtime_root": str,
    "runtime_type": str,
    "monitor_path": str,
    "monitor_cgroup": str,
    "monitor_env": list,
    "monitor_exec_cgroup": str,
}
CRIO_TYPES = {"oci", "pod", "vm"}
# Of the packages that the CRI-O project makes from 1.30 on: nothing of these is on PATH.
PACKAGED = """\
[crio.runtime]
default_runtime = "crun"
[crio.runtime.runtimes.crun]
runtime_path = "/usr/libexec/crio/crun"
runtime_root = "/run/crun"
monitor_path = "/usr/libexec/crio/conmon"
allowed_annotations = ["io.containers.trace-syscall"]
[crio.runtime.runtimes.runc]
runtime_path = "/usr/libexec/crio/runc"
runtime_root = "/run/runc"
monitor_path = "/usr/libexec/crio/conmon"
"""
ENGINES = pytest.mark.parametrize("engine", [crio.ENGINE, podman.ENGINE], ids=lambda engine: engine.name)


@pytest.fixture(autouse=True)
def on_path(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The programs on PATH, to be changed."""
    found = {crio.MONITOR}
    monkeypatch.setattr(crio, "program_path", lambda name: name if name in found else None)
    return found


def handler_of(path: Path) -> dict[str, Any]:
    """The handler that CRI-O is told of, and nothing beside it."""
    document = tomllib.loads(path.read_text())
    handler = document["crio"]["runtime"]["runtimes"].pop("mgpu")
    assert document == {"crio": {"runtime": {"runtimes": {}}}}
    assert {key: type(value) for key, value in handler.items()}.items() <= CRIO_HANDLER.items()
    assert (handler["runtime_path"], handler["runtime_type"] in CRIO_TYPES) == (PARTS.runtime, True)
    assert isinstance(handler, dict)
    return handler


def test_crio_gets_a_handler_as_its_manual_has_it(tmp_path: Path) -> None:
    path = tmp_path / "99-mgpu.conf"
    install(crio.ENGINE, intent(tmp_path, path))
    handler = handler_of(path)
    # CRI-O ignores a handler with values there that are not its own, and hands annotations on without.
    assert "allowed_annotations" not in handler
    assert not any(key.startswith("monitor_") for key in handler)


CONMON = {"monitor_path": "/usr/libexec/crio/conmon"}
MONITORS: dict[str, tuple[dict[str, str], bool, dict[str, Any]]] = {
    "packaged": ({"crio.conf.d/10-crio.conf": PACKAGED}, False, CONMON),
    # Before 1.18 conmon counted for all, and it still does.
    "for all": ({"crio.conf": '[crio.runtime]\nconmon = "/opt/conmon"\n'}, False, {}),
    "no file": ({}, True, {}),
    "all of it": (
        {
            "crio.conf": '[crio.runtime.runtimes.runc]\nmonitor_path = "/x"\nmonitor_cgroup = "pod"\n'
            'monitor_env = ["A=b"]\nseccomp_profile = "/y"\n'
        },
        True,
        {"monitor_path": "/x", "monitor_cgroup": "pod", "monitor_env": ["A=b"]},
    ),
    "last file": (
        {
            "crio.conf": '[crio.runtime.runtimes.crun]\nmonitor_path = "/old"\n',
            "crio.conf.d/10-crio.conf": PACKAGED,
            # CRI-O reads whatever is there, in folders too.
            "crio.conf.d/20/later": '[crio.runtime.runtimes.crun]\nmonitor_path = "/new"\n',
        },
        False,
        {"monitor_path": "/new"},
    ),
    # A handler that two files have is what the last one says, and nothing of the first.
    "last word": (
        {
            "crio.conf.d/10-crio.conf": PACKAGED,
            "crio.conf.d/20.conf": '[crio.runtime.runtimes.crun]\nruntime_path = "/usr/bin/crun"\n',
        },
        False,
        CONMON,
    ),
    "of another type": (
        {
            "crio.conf": '[crio.runtime]\ndefault_runtime = "kata"\n[crio.runtime.runtimes.kata]\n'
            'runtime_type = "vm"\nmonitor_path = "/x"\n' + PACKAGED.partition("\n")[2].partition("\n")[2]
        },
        False,
        CONMON,
    ),
}


@pytest.mark.parametrize(("files", "has_conmon", "said"), MONITORS.values(), ids=MONITORS)
def test_crios_handler_has_the_monitor_of_the_others(
    tmp_path: Path, on_path: set[str], files: dict[str, str], has_conmon: bool, said: dict[str, Any]
) -> None:
    if not has_conmon:
        on_path.clear()
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    intended = intent(tmp_path, tmp_path / "crio.conf.d" / "99-mgpu.conf")
    before = tree(tmp_path)
    install(crio.ENGINE, intended)
    handler = handler_of(tmp_path / "crio.conf.d" / "99-mgpu.conf")
    assert {key: value for key, value in handler.items() if key.startswith("monitor_")} == said
    assert install(crio.ENGINE, intended).changes == ()
    uninstall(crio.ENGINE, intended)
    assert tree(tmp_path) == before


def test_conmon_is_found_beside_conmonrs(tmp_path: Path, on_path: set[str]) -> None:
    on_path.clear()
    text = f'[crio.runtime.runtimes.crun]\nruntime_type = "pod"\nmonitor_path = "{tmp_path}/conmonrs"\n'
    (tmp_path / "crio.conf").write_text(text)
    intended = intent(tmp_path, tmp_path / "crio.conf.d" / "99-mgpu.conf")
    with pytest.raises(
        Refusal, match=r"conmon is not on PATH[^\n]*would not start[^\n]*nothing was changed$"
    ):
        install(crio.ENGINE, intended)
    assert tree(tmp_path) == {"crio.conf": text.encode()}
    (tmp_path / "conmon").touch()
    install(crio.ENGINE, intended)
    assert handler_of(tmp_path / "crio.conf.d" / "99-mgpu.conf")["monitor_path"] == f"{tmp_path}/conmon"


def test_podman_gets_a_named_runtime_whose_errors_are_json(tmp_path: Path) -> None:
    path = tmp_path / "99-mgpu.conf"
    install(podman.ENGINE, intent(tmp_path, path))
    known = [*podman.JSON_RUNTIMES, "mgpu", "mgpu-runtime"]
    told = {"runtimes": {"mgpu": [PARTS.runtime]}, "runtime_supports_json": known}
    assert tomllib.loads(path.read_text()) == {"engine": told}


def test_runtimes_that_were_named_before_stay_named(tmp_path: Path) -> None:
    path = tmp_path / "containers.conf.d" / "99-mgpu.conf"
    path.parent.mkdir()
    (tmp_path / "containers.conf").write_text('[engine]\nruntime_supports_json = ["mine", "mgpu"]\n')
    install(podman.ENGINE, intent(tmp_path, path))
    engine = tomllib.loads(path.read_text())["engine"]
    assert engine["runtime_supports_json"] == ["mine", "mgpu", "mgpu-runtime"]


@ENGINES
def test_file_goes_again(tmp_path: Path, engine: Engine) -> None:
    intended = intent(tmp_path, tmp_path / "conf.d" / "99-mgpu.conf")
    install(engine, intended)
    assert install(engine, intended).changes == ()
    uninstall(engine, intended)
    assert tree(tmp_path) == {}
    assert uninstall(engine, intended).changes == ()


@ENGINES
def test_uninstall_keeps_edited_drop_ins(tmp_path: Path, engine: Engine) -> None:
    path = tmp_path / "99-mgpu.conf"
    intended = intent(tmp_path, path)
    install(engine, intended)
    path.write_text(f"# mine\n{path.read_text()}[mine]\na = 1\n")
    uninstall(engine, intended)
    assert path.read_text() == "# mine\n[mine]\na = 1\n"


def test_no_copy_lies_among_what_crio_reads(tmp_path: Path) -> None:
    path = tmp_path / "crio.conf.d" / "10-own.conf"
    path.parent.mkdir()
    path.write_text("[crio.image]\npause_image = 'p'")
    intended = intent(tmp_path, path)
    install(crio.ENGINE, intended)
    assert sorted(tree(tmp_path)) == ["10-own.conf.mgpu-backup", "crio.conf.d/10-own.conf"]
    uninstall(crio.ENGINE, intended)
    assert tree(tmp_path) == {"crio.conf.d/10-own.conf": b"[crio.image]\npause_image = 'p'"}


def test_table_of_runtimes_takes_no_second_one(tmp_path: Path) -> None:
    path = tmp_path / "containers.conf"
    path.write_text('[engine.runtimes]\nkata = ["/usr/bin/kata"]\n')
    with pytest.raises(Refusal, match="nothing was changed"):
        install(podman.ENGINE, intent(tmp_path, path))
