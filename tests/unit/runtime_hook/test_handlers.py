"""What a row of interface.def names is there: a handler, and the simulated driver's for what is executed."""

import re

import pytest

from tests.support.places import REPOSITORY

ROWS = (REPOSITORY / "native_sched/nvidia/rm" / "interface.def").read_text()
BOUNDARY = REPOSITORY / "native_sched/nvidia/boundary"
HANDLERS = sorted(
    set(re.findall(r"^(?:ESCAPE|UVM|CONTROL)\(.*(?:MEDIATED|ANSWERED)\((\w+)", ROWS, re.MULTILINE))
)
EXECUTED = sorted(
    {
        re.sub(r"_NVOS\d+$", "", name)
        for name in re.findall(r"^ESCAPE\((\w+), .*MEDIATED\(.*EXECUTED", ROWS, re.MULTILINE)
    }
)


def test_rows_are_read() -> None:
    assert len(HANDLERS) > 50
    assert len(EXECUTED) > 10


@pytest.mark.parametrize("name", HANDLERS)
def test_handler_of_a_row_is_defined_and_declared(name: str) -> None:
    definition = re.compile(rf"^\w[\w *]*\b{name}\([^;{{]*\)\n\{{", re.MULTILINE)
    found = [match[0] for path in BOUNDARY.rglob("*.c") if (match := definition.search(path.read_text()))]
    assert found, f"{name}: no handler below native_sched/nvidia/boundary"
    if found[0].startswith("static "):
        return
    declared = [path for path in BOUNDARY.rglob("*.h") if f" {name}(" in path.read_text()]
    assert declared, f"{name}: not declared, as handlers.h does"


@pytest.mark.parametrize("name", EXECUTED)
def test_simulated_driver_knows_what_mgpud_executes(name: str) -> None:
    sources = [path.read_text() for path in (REPOSITORY / "sim" / "card").rglob("*.c")]
    assert any(re.search(rf"\b{name}\b", text) for text in sources), f"{name} is nowhere in sim/card"
