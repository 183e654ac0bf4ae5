"""What the other tests here read is what happened."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from tests.chaos.field import Ring, one_installation


def test_call_that_is_half_written_is_not_read(tmp_path: Path) -> None:
    """Its place has the instants of an earlier call, or the end of one."""
    ring = Ring(tmp_path / "ring")
    with (tmp_path / "ring").open("r+b") as file:
        file.write(struct.pack("=Q6Q", 3, 100, 140, 200, 60, 0, 0))
    assert ring.calls == 3
    assert [call for call in ring.since(0) if call[0] > 90] == [(100, 140)]
    ring.close()


def test_installation_under_a_run_is_the_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = tmp_path / "library"
    library.touch()
    monkeypatch.setattr("oci_specs.paths.lib", lambda name: str(library))
    with one_installation():
        pass

    def replaced() -> None:
        with one_installation():
            library.unlink()
            library.write_bytes(b"another")
            raise RuntimeError("what came of it")

    with pytest.raises(AssertionError, match="installed anew"):
        replaced()
