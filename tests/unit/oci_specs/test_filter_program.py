"""Which programs of filters are taken for mgpu's: those that hand over or refuse all of its calls."""

import struct

import pytest

from oci_specs.seccomp import rewrite
from oci_specs.seccomp.notified import NOTIFY_CUBES, REFUSED_CUBES
from oci_specs.seccomp.program import lets_through
from tests.support.libseccomp import ERRNO_EPERM, NOTIFY, Filter
from tests.support.seccomp_profiles import Profile, crio_default, engine_default, profile

ALLOW = 0x7FFF0000
RET_K = 0x06


def program(profile: Profile | None, *, binary_tree: bool = False) -> bytes:
    made = Filter(profile or {"defaultAction": "SCMP_ACT_ALLOW"}, binary_tree=binary_tree)
    return b"".join(struct.pack("<HBBI", *each) for each in made.program)


def written(profile: Profile | None, *, binary_tree: bool = False) -> bytes:
    return program(rewrite(profile, listener_path="/l", metadata="m"), binary_tree=binary_tree)


@pytest.mark.parametrize("binary_tree", [False, True])
@pytest.mark.parametrize("profile", [None, engine_default(), crio_default()])
def test_filters_of_mgpu_let_nothing_through(profile: Profile | None, binary_tree: bool) -> None:
    assert lets_through(written(profile, binary_tree=binary_tree)) is None


@pytest.mark.parametrize("profile", [None, engine_default(), crio_default()])
def test_filters_of_others_are_seen_to_let_calls_through(profile: Profile | None) -> None:
    assert "of x86-64" in (lets_through(program(profile)) or "")


@pytest.mark.parametrize("datum", [datum for _, datum in (*NOTIFY_CUBES, *REFUSED_CUBES)])
def test_filter_that_lacks_one_kind_of_call_is_seen(datum: int) -> None:
    # Where calls are logged, each of the exact lists has a rule of its own.
    rewritten = rewrite(profile("LOG"), listener_path="/l", metadata="m")
    kept = [
        entry
        for entry in rewritten["syscalls"]
        if not ("ioctl" in entry["names"] and any(arg.get("valueTwo") == datum for arg in entry["args"]))
    ]
    assert len(kept) < len(rewritten["syscalls"])
    assert "ioctl" in (lets_through(program({**rewritten, "syscalls": kept})) or "")


@pytest.mark.parametrize("verdict", [NOTIFY, ERRNO_EPERM])
def test_verdict_that_was_changed_is_seen(verdict: int) -> None:
    was, now = (struct.pack("<HBBI", RET_K, 0, 0, each) for each in (verdict, ALLOW))
    assert was in (whole := written(None))
    assert lets_through(whole.replace(was, now))


def test_program_that_is_cut_off_or_none_is_said() -> None:
    whole = written(engine_default())
    for bad in (whole[:-40], whole[:-3], b"", struct.pack("<HBBI", 0x61, 0, 0, 0)):
        with pytest.raises(ValueError, match=r"cut off|instruction"):
            lets_through(bad)
