"""CRI-O's and podman's drop-ins."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from install_support import PARTS, install, intent, tree, uninstall

from install import crio, podman
from install.engine import Engine
from oci_specs.refusal import Refusal

# crio.conf(5), CRIO.RUNTIME.RUNTIMES TABLE, of CRI-O 1.18 to 1.32: what a handler may say, and of what type.
CRIO_HANDLER = {
    "runtime_path": str,
    "runtime_root": str,
    "runtime_type": str,
    "runtime_config_path": str,
    "privileged_without_host_devices": bool,
    "allowed_annotations": list,
    "platform_runtime_paths": dict,
}
CRIO_TYPES = {"oci", "vm"}
ENGINES = pytest.mark.parametrize("engine", [crio.ENGINE, podman.ENGINE], ids=lambda engine: engine.name)


def test_crio_gets_a_handler_as_its_manual_has_it(tmp_path: Path) -> None:
    path = tmp_path / "99-mgpu.conf"
    install(crio.ENGINE, intent(tmp_path, path))
    document = tomllib.loads(path.read_text())
    handler = document["crio"]["runtime"]["runtimes"].pop("mgpu")
    assert document == {"crio": {"runtime": {"runtimes": {}}}}
    assert {key: type(value) for key, value in handler.items()}.items() <= CRIO_HANDLER.items()
    assert (handler["runtime_path"], handler["runtime_type"] in CRIO_TYPES) == (PARTS.runtime, True)
    # CRI-O does not start with values there that are not its own, and hands annotations on without.
    assert "allowed_annotations" not in handler


def test_podman_gets_a_named_runtime(tmp_path: Path) -> None:
    path = tmp_path / "99-mgpu.conf"
    install(podman.ENGINE, intent(tmp_path, path))
    assert tomllib.loads(path.read_text()) == {"engine": {"runtimes": {"mgpu": [PARTS.runtime]}}}


@ENGINES
def test_the_file_goes_again(tmp_path: Path, engine: Engine) -> None:
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


def test_a_table_of_runtimes_takes_no_second_one(tmp_path: Path) -> None:
    path = tmp_path / "containers.conf"
    path.write_text('[engine.runtimes]\nkata = ["/usr/bin/kata"]\n')
    with pytest.raises(Refusal, match="nothing was changed"):
        install(podman.ENGINE, intent(tmp_path, path))
