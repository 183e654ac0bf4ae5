import sys
from pathlib import Path

import pytest

from oci_specs import paths
from oci_specs.refusal import Refusal


def installed(prefix: Path, name: str) -> str:
    path = prefix / name
    path.parent.mkdir(parents=True)
    path.touch()
    return str(path)


def test_interpreter_s_prefix_comes_before_the_environment_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, other = tmp_path / "own", tmp_path / "other"
    monkeypatch.setattr(sys, "prefix", str(own))
    monkeypatch.setenv("MGPU_PREFIX", str(other))
    elsewhere = installed(other, "libexec/mgpu/mgpu-hook")
    assert paths.libexec("mgpu-hook") == elsewhere
    here = installed(own, "libexec/mgpu/mgpu-hook")
    assert paths.libexec("mgpu-hook") == here
    library = installed(own, "lib/mgpu/sim/libcuda.so.1")
    assert paths.lib("sim/libcuda.so.1") == library


def test_missing_file_is_refused_with_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.delenv("MGPU_PREFIX", raising=False)
    with pytest.raises(Refusal) as raised:
        paths.lib("libmgpu_engine.so")
    assert raised.value.line() == (
        f"mgpu: lib/mgpu/libmgpu_engine.so is not below {tmp_path}; "
        "install mgpu again, or set MGPU_PREFIX to where it is installed"
    )
