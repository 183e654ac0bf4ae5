"""The units by systemd's own judgement, and the presets."""

import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from install import parts, systemd
from native_sched.daemon.control.health import PERIOD_S, STUCK_S
from oci_specs.refusal import Refusal
from tests.support.commands import Done, attempt
from tests.unit.install_support import PARTS

# Of 10, by systemd-analyze security 252; the holder does with next to nothing, mgpud needs what its unit
# lists.
MOST_EXPOSURE = {"mgpu-holder.service": 1.6, "mgpud.service": 3.9}


@pytest.fixture
def units(tmp_path: Path) -> Path:
    """The units, with programs that are there: systemd looks for them."""
    program = Path(sys.executable).resolve()
    here = replace(PARTS, holder=str(program), mgpud=str(program))
    for name in systemd.UNITS:
        (tmp_path / name).write_text(systemd.rendered(name, here))
    return tmp_path


def analyze(*args: str | Path) -> Done:
    return attempt("systemd-analyze", *args, env={"LC_ALL": "C.UTF-8"})


@pytest.mark.parametrize("name", systemd.UNITS)
def test_systemd_finds_no_fault(units: Path, name: str) -> None:
    done = analyze("verify", "--man=no", units / name)
    faults = [line for line in done.err.splitlines() if name in line or "mgpu" in line]
    assert (done.status, faults) == (0, []), done.err


def test_fault_would_be_found(units: Path) -> None:
    unit = units / "mgpud.service"
    unit.write_text(unit.read_text().replace("Type=notify", "Type=exce\nNonsense=yes"))
    done = analyze("verify", "--man=no", unit)
    assert "Nonsense" in done.err
    assert "exce" in done.err


@pytest.mark.parametrize("name", systemd.UNITS)
def test_exposure_is_bounded(units: Path, name: str) -> None:
    done = analyze("security", "--offline=true", "--no-pager", "--json=short", units / name)
    assert done.status == 0, done.err
    assert json.loads(done.out), done.out
    shown = analyze("security", "--offline=true", "--no-pager", units / name).out
    found = re.search(r"Overall exposure level for \S+: ([0-9.]+)", shown)
    assert found is not None, shown
    assert float(found[1]) <= MOST_EXPOSURE[name]


def test_rendered_units_have_no_placeholders() -> None:
    for name in (*systemd.UNITS, systemd.PRESET):
        assert "@" not in systemd.rendered(name, PARTS).replace("@system-service", "").replace("@debug", "")


def test_preset_names_the_units() -> None:
    preset = systemd.rendered(systemd.PRESET, PARTS)
    assert preset.split() == [word for unit in systemd.UNITS for word in ("enable", unit)]


def test_stuck_mgpud_is_ended_by_systemd() -> None:
    unit = systemd.rendered("mgpud.service", PARTS)
    [most_s] = re.findall(r"^WatchdogSec=(\d+)$", unit, re.MULTILINE)
    # It stops to say that it is alive only after STUCK_S, and systemd waits for twice what lies between two
    # words.
    assert int(most_s) > STUCK_S > 2 * PERIOD_S
    assert "\nType=notify\n" in unit


def test_units_are_ordered_before_engines_and_after_the_holder() -> None:
    for name in systemd.UNITS:
        before = re.search(r"^Before=(.*)$", systemd.rendered(name, PARTS), re.MULTILINE)
        assert before is not None
        assert {"containerd.service", "docker.service", "crio.service"} <= set(before[1].split())
    assert "\nAfter=mgpu-holder.service\n" in systemd.rendered("mgpud.service", PARTS)


@pytest.mark.parametrize(
    "path", ["/opt/m gpu/x", "/opt/50%/x", '/opt/"/x', "/opt/$x", "/opt/ü/x", "/opt/\n"]
)
def test_paths_that_units_would_read_otherwise_are_refused(path: str) -> None:
    with pytest.raises(Refusal, match="plain path"):
        parts.checked(replace(PARTS, mgpud=path))
