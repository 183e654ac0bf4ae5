"""The rewritten filter in the kernel, put there by the real runc and crun, against the container's own
filter.
"""

import errno
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from oci_specs.seccomp import rewrite
from oci_specs.seccomp.notified import NOTIFY_CUBES, REFUSED_CUBES
from tests.support import host
from tests.support.bundle import bundle
from tests.support.commands import run
from tests.support.listener import Listener, listening
from tests.support.seccomp_profiles import (
    LOW,
    TCGETS,
    TIOCLINUX,
    TIOCSTI,
    Profile,
    condition,
    crio_default,
    engine_default,
    profile,
    rule,
)
from tests.support.watched import RM_PAIRS, UVM_COMMANDS

SOURCE = Path(__file__).resolve().parents[2] / "programs" / "ioctl_probe.c"
NONCE = "0123456789abcdef0123456789abcdef"
# No ioctl of /dev/null gives this one.
ANSWER = errno.EXDEV
FIRST_PAIR = 0xC030462B

PROFILES: dict[str, Profile | None] = {
    "unconfined": None,
    "engine default": engine_default(),
    "CRI-O": crio_default(),
    "no TIOCSTI": profile("ALLOW", rule("ERRNO", condition("MASKED_EQ", LOW, TIOCSTI), errno=errno.EDOM)),
    "no terminal tricks": profile(
        "ALLOW", rule("ERRNO", condition("EQ", TIOCSTI), condition("EQ", TIOCLINUX), errno=errno.EDOM)
    ),
    "all but TIOCSTI": engine_default(rule("ALLOW", condition("NE", TIOCSTI))),
    "some RM calls denied": profile("ALLOW", rule("ERRNO", condition("EQ", FIRST_PAIR), errno=errno.EDOM)),
}

# A line of the probe's list: the ABI, the number.
Call = tuple[str, int]
I386, X86_64 = 0x40000003, 0xC000003E


def is_watched(command: int) -> bool:
    """As the mediator sees it, which lets all else go on."""
    return any(command & mask == datum for mask, datum in NOTIFY_CUBES + REFUSED_CUBES)


def watched(call: Call) -> bool:
    return call[0] != "u" and is_watched(call[1])


def calls() -> list[Call]:
    """Every type and direction of some RM calls, what lies beside the set, and anything at all."""
    rng = random.Random(3)
    commands = [TIOCSTI, TIOCLINUX, TCGETS, FIRST_PAIR, *UVM_COMMANDS]
    commands += [size << 16 | number for number, size in RM_PAIRS]
    for number, size in (RM_PAIRS[0], RM_PAIRS[5], RM_PAIRS[-1], (200, 72), (212, 4), (211, 16)):
        commands += [
            direction << 30 | size << 16 | kind << 8 | number
            for direction in range(4)
            for kind in range(256)
        ]
    commands += [command ^ 1 << bit for command in (FIRST_PAIR, *UVM_COMMANDS[:3]) for bit in range(32)]
    commands += [rng.randrange(1 << 32) for _ in range(20_000)]
    native = [("n", command) for command in commands]
    high = [("n", command | rng.randrange(1, 1 << 32) << 32) for command in commands[:3000]]
    return [*native, *high, *(("x", command) for command in commands[:500]), ("u", 1), ("u", 0)]


def i386_calls() -> list[Call]:
    return [("i", command) for _, command in calls()[:2000]]


@pytest.fixture(scope="module")
def probe() -> Iterator[Path]:
    """A directory with the probe and a place for its list."""
    with host.home("probe") as home:
        run("gcc", "-static", "-O1", "-Wall", "-Wextra", "-Werror", "-o", home / "probe", SOURCE)
        yield home


def make(probe: Path, runtime: str, seccomp: Profile | None, listed: list[Call]) -> list[int]:
    """The errno of each call, made in a container with this seccomp section."""
    (probe / "calls").write_text("".join(f"{abi} {number:x}\n" for abi, number in listed))
    mount = {"destination": "/probe", "type": "bind", "source": str(probe), "options": ["bind", "ro"]}
    with bundle("/probe/probe", "/probe/calls", mounts=[mount]) as made:

        def fill(config: dict[str, dict[str, object]]) -> None:
            if seccomp is not None:
                config["linux"]["seccomp"] = seccomp

        made.edit(fill)
        return [int(line) for line in made.output(runtime).split()]


def make_rewritten(
    probe: Path, runtime: str, own: Profile | None, listed: list[Call]
) -> tuple[list[int], Listener]:
    with host.home("listen") as home:
        path = home / "seccomp.sock"
        with listening(path, ANSWER, is_watched) as listener:
            errors = make(probe, runtime, rewrite(own, listener_path=str(path), metadata=NONCE), listed)
    return errors, listener


@pytest.mark.parametrize("runtime", ["runc", "crun"])
@pytest.mark.parametrize("name", PROFILES)
def test_kernel_decides_as_before(private_host: None, probe: Path, runtime: str, name: str) -> None:
    own = PROFILES[name]
    listed = calls()
    before = make(probe, runtime, own, listed)
    after, listener = make_rewritten(probe, runtime, own, listed)
    denied = errno.EDOM
    wrong = []
    expected_notified = 0
    for call, was, now in zip(listed, before, after, strict=True):
        expected = was
        # The kernel drops the upper half: such a call may be denied with its command.
        if was == denied or (now == denied and watched(call) and call[1] > LOW):
            expected = denied
        elif watched(call):
            expected = ANSWER
            expected_notified += 1
        elif call[0] == "u" and was != errno.ENOSYS:
            expected = errno.EPERM
        if now != expected:
            wrong.append((call[0], hex(call[1]), was, now, expected))
    assert not wrong[:20]
    assert expected_notified > 5000
    assert len(listener.calls) == expected_notified
    assert {state["metadata"] for state in listener.states} == {NONCE}


def can_i386(probe: Path) -> bool:
    (probe / "calls").write_text(f"i {TCGETS:x}\n")
    try:
        return run(probe / "probe", probe / "calls").strip() == str(errno.ENOTTY)
    except AssertionError:
        return False


@pytest.mark.parametrize("runtime", ["runc", "crun"])
@pytest.mark.parametrize("name", PROFILES)
def test_i386_calls(private_host: None, probe: Path, runtime: str, name: str) -> None:
    """The mediator refuses them; what matters here is that they reach it."""
    if not can_i386(probe):
        pytest.skip("this kernel has no i386 system calls")
    own = PROFILES[name]
    listed = i386_calls()
    before = make(probe, runtime, own, listed)
    after, listener = make_rewritten(probe, runtime, own, listed)
    for call, was, now in zip(listed, before, after, strict=True):
        if was == errno.EDOM:
            assert now == was, hex(call[1])
        elif watched(call):
            assert now == ANSWER, hex(call[1])
        else:
            assert now == was, hex(call[1])
    assert {architecture for architecture, _, _ in listener.calls} == {I386}


@pytest.mark.parametrize("runtime", ["runc", "crun"])
def test_denied_call_is_not_notified(private_host: None, probe: Path, runtime: str) -> None:
    own = profile("ALLOW", rule("ERRNO", errno=errno.EDOM))
    listed = calls()[:3000]
    with host.home("listen") as home:
        path = home / "seccomp.sock"
        with listening(path, ANSWER, is_watched) as listener:
            errors = make(probe, runtime, rewrite(own, listener_path=str(path), metadata=NONCE), listed)
    assert set(errors) == {errno.EDOM}
    assert not listener.calls
