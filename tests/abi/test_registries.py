"""The facts against NVIDIA's headers as others have them: Debian's source packages, and what tinygrad is made
from.

A fact that holds in the known drivers on both sides of a release holds in it. How many were compared is told.
"""

import copy
import functools
import warnings
from collections.abc import Callable

import pytest

from tests.abi import debian
from tests.support.places import FOREIGN_PACKAGES
from tools.abi import neighbours, store
from tools.abi.from_tinygrad import Module
from tools.abi.measure import measure
from tools.abi.neighbours import Verdict
from tools.abi.problem import Problem
from tools.abi.release import Release
from tools.abi.tree import HeaderTree
from tools.debian_archive import Unavailable

DEBIAN = (535, 550, 555)
TINYGRAD = (570, 580, 610)
# Fewer are no comparison: a tree of which hardly a name was understood.
LEAST = {"Debian": 3000, "tinygrad": 1500}


class Gone(UserWarning):
    """A registry has dropped a release: nothing is wrong, and less is compared."""


@functools.cache
def known() -> store.Store:
    return store.load()


def told(record: Callable[[str, object], None], where: str, verdict: Verdict) -> None:
    record("facts", f"{where}: {verdict.line()}")
    assert not verdict.differs, "\n".join([verdict.line(), *verdict.differs])
    assert verdict.compared > LEAST[where]


@functools.cache
def sources() -> list[debian.Source] | Unavailable:
    try:
        return debian.served()
    except Unavailable as why:
        return why


@pytest.mark.parametrize("major", DEBIAN)
def test_debians_driver_is_as_the_facts_say(
    major: int, record_property: Callable[[str, object], None]
) -> None:
    found = sources()
    if isinstance(found, Unavailable):
        pytest.skip(f"0 facts of {major} compared: {found}")
    of_branch = [source for source in found if source.driver.startswith(f"{major}.")]
    if not of_branch:
        warnings.warn(
            f"0 facts of {major} compared: Debian has no driver of this branch any more", Gone, stacklevel=1
        )
    for source in of_branch:
        try:
            tree = HeaderTree(debian.headers(source))
        except Unavailable as why:
            pytest.skip(f"0 facts of {source.driver} compared: {why}")
        told(record_property, "Debian", neighbours.judge(known(), measure(tree, "Debian")))


@pytest.mark.parametrize("major", TINYGRAD)
def test_tinygrads_module_is_as_the_facts_say(
    major: int, record_property: Callable[[str, object], None]
) -> None:
    """A commit alone says which release of a branch a module is of: what holds in the whole branch holds in
    it.
    """
    sides = neighbours.branch(known(), major)
    like = [release for release in known().releases.values() if release.complete]
    try:
        module = Module(FOREIGN_PACKAGES, f"nv_{major}")
    except Problem as why:
        warnings.warn(f"0 facts of {major} compared: {why}", Gone, stacklevel=1)
        return
    release = module.release(f"{major}.999", sides[1] if sides[1].complete else like[-1])
    told(record_property, "tinygrad", neighbours.judge(known(), release, sides))


def between() -> Release:
    """What a release between two known ones says: here, all that the one before it says."""
    release = copy.deepcopy(known().releases["560.28.03"])
    release.version = "560.29.01"
    return release


def test_release_that_fits_its_neighbours_has_no_differences() -> None:
    verdict = neighbours.judge(known(), between())
    assert (verdict.before, verdict.after) == ("560.28.03", "560.31.02")
    assert verdict.differs == []
    assert verdict.compared > LEAST["Debian"]


@pytest.mark.parametrize(
    ("kind", "key", "value"),
    [
        pytest.param("status", ("NV_ERR_NO_MEMORY",), ("0x52",), id="a wrong status"),
        pytest.param(
            "class", ("NV01_DEVICE_0",), ("0x80", "NV0080_ALLOC_PARAMETERS", "64"), id="a size off by 8"
        ),
        pytest.param("field", ("NVOS54_PARAMETERS", "status"), ("0x18", "4"), id="a field elsewhere"),
        pytest.param("uvm", ("UVM_FREE",), None, id="a command that is not there"),
        pytest.param("uvm", ("UVM_NEW",), ("0x63", "-", "-"), id="a command that nobody else has"),
    ],
)
def test_release_that_differs_is_told(
    kind: str, key: tuple[str, ...], value: tuple[str, ...] | None
) -> None:
    release = between()
    release.facts[kind].pop(key, None)
    if value is not None:
        release.facts[kind][key] = value
    verdict = neighbours.judge(known(), release)
    assert len(verdict.differs) == 1
    assert verdict.differs[0].startswith(f"{kind} {' '.join(key)}: ")
    assert "1 differ" in verdict.line()
