"""The rewrite against libseccomp itself: what each filter decides, before and after."""

import copy
import json
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st

from oci_specs.refusal import Refusal
from oci_specs.seccomp import check_annotations, rewrite
from oci_specs.seccomp.notified import NOTIFY_CUBES, REFUSED_CUBES
from oci_specs.seccomp.size import MAX_INSTRUCTIONS, estimate
from tests.support.libseccomp import (
    ACTION_MASK,
    NOTIFY,
    PERMISSIVE,
    Filter,
    Rejected,
)
from tests.support.seccomp_profiles import (
    ABIS,
    ALL,
    DENIED_BY_DEFAULT,
    LOW,
    TCGETS,
    TIOCLINUX,
    TIOCSTI,
    X86,
    X86_64,
    Call,
    Profile,
    calls,
    condition,
    crio_default,
    engine_default,
    profile,
    profiles,
    rule,
    syscall_number,
)
from tests.support.watched import RM_PAIRS, UVM_COMMANDS
from tests.unit.seccomp_support import check

LISTENER = "/run/mgpu/seccomp.sock"


def rewritten(of: Profile | None, metadata: str = "nonce") -> Profile:
    return rewrite(of, listener_path=LISTENER, metadata=metadata)


COMMANDS = [
    *(0xC0000000 | size << 16 | 0x4600 | nr for nr, size in RM_PAIRS),
    *(size << 16 | nr for nr, size in RM_PAIRS),
    *(0xC0000000 | (size + 1) << 16 | 0x4600 | nr for nr, size in RM_PAIRS),
    *(datum for _, datum in NOTIFY_CUBES + REFUSED_CUBES),
    *(command ^ 1 << bit for command in UVM_COMMANDS[:4] for bit in range(32)),
    TIOCSTI,
    TIOCLINUX,
    TCGETS,
    0,
    LOW,
]
HIGH_WORDS = (0, 1 << 32, LOW << 32)
# Each argument at the values between which the filter tells apart, one or two of them changed at a time.
MANAGED = (0x7F0000000000, 2 << 20, 3, 0x11, 7, 0x7F0000000000)
CHANGED: tuple[tuple[int, ...], ...] = (
    (0, 1, 4096, LOW << 32, ALL),
    (0, (1 << 57) - 4096, 1 << 62, (1 << 63) + 1, LOW << 32, ALL, (LOW << 32) - 1),
    (0, 1, 2, 7, 3 | 1 << 32, 1 << 32),
    (0, 1, 2, 3, 0x10, 0x12, 0x13, 0x22, 0x100001, 0x100002, 0x1 | 1 << 32, 0x10 << 32),
    (0, LOW, ALL, LOW << 32, 1 << 32),
    (0, 1, 4095, 4096, 1 << 32, 1 << 63, ALL & ~4095),
)
MAPPINGS = sorted(
    {
        tuple(
            one if index == first else other if index == second else value
            for index, value in enumerate(MANAGED)
        )
        for first, ones in enumerate(CHANGED)
        for second, others in enumerate(CHANGED)
        for one in (*ones, MANAGED[first])
        for other in others
    }
)


def check_everywhere(of: Profile | None, result: Profile, **how: bool) -> None:
    unconfined = profile("ALLOW")
    before, after = Filter(of or unconfined, **how), Filter(result, **how)
    for abi in ABIS:
        for command in COMMANDS:
            for high in HIGH_WORDS if abi != X86 else (0,):
                check(before, after, (abi, syscall_number("ioctl", abi), (3, command | high, 7, 0, 0, 0)))
        for name in ("io_uring_setup", "read", "personality", "clone", "clone3", "getpid", "mount"):
            for value in (0, 8, 0x10000000):
                check(before, after, (abi, syscall_number(name, abi), (value, 1, 2, 3, 4, 5)))
        for args in MAPPINGS:
            low = args if abi != X86 else tuple(arg & LOW for arg in args)
            for name in ("mmap", "mmap2") if abi == X86 else ("mmap",):
                check(before, after, (abi, syscall_number(name, abi), low))
        for nr in (1000, -1):
            check(before, after, (abi, nr, (0,) * 6))


EQ_FIRST_PAIR = 0xC030462B
ORDINARY: dict[str, Profile | None] = {
    "unconfined": None,
    "engine default": engine_default(),
    "CRI-O": crio_default(),
    "all but a list": profile("ALLOW", rule("ERRNO", names=tuple(sorted(DENIED_BY_DEFAULT)))),
    "nothing allowed": profile("KILL_PROCESS"),
    "no ioctl": profile("ERRNO", rule("ALLOW", names=("read", "write"))),
    "logged": profile("LOG"),
    "traced": profile("TRACE", errno=7),
    "logged ioctl": profile("ERRNO", rule("LOG")),
    "traced ioctl": profile("ERRNO", rule("TRACE", errno=9)),
    "unconditional outvotes": profile("ERRNO", rule("KILL", condition("EQ", TIOCSTI)), rule("ALLOW")),
    "first unconditional wins": profile("ERRNO", rule("ALLOW"), rule("KILL"), rule("LOG")),
    "first unconditional denies": profile(
        "ALLOW", rule("KILL"), rule("LOG"), rule("LOG", condition("EQ", 5))
    ),
    "no TIOCSTI": profile("ALLOW", rule("ERRNO", condition("EQ", TIOCSTI), errno=1)),
    "no TIOCSTI, masked": profile(
        "ALLOW", *(rule("ERRNO", condition("MASKED_EQ", LOW, value)) for value in (TIOCSTI, TIOCLINUX))
    ),
    "all but TIOCSTI": profile("ERRNO", rule("ALLOW", condition("NE", TIOCSTI))),
    "all but an RM call": profile("ERRNO", rule("ALLOW", condition("NE", EQ_FIRST_PAIR))),
    "some terminals": profile(
        "ERRNO", rule("ALLOW", condition("EQ", TCGETS)), rule("LOG", condition("EQ", TIOCSTI))
    ),
    "one RM call": profile("ERRNO", rule("ALLOW", condition("EQ", EQ_FIRST_PAIR)), errno=38),
    "NVIDIA type": profile("ERRNO", rule("ALLOW", condition("MASKED_EQ", 0xFF00, 0x4600))),
    "not the NVIDIA type": profile("ALLOW", rule("ERRNO", condition("MASKED_EQ", 0xFF00, 0x4600))),
    "one fd": profile(
        "ERRNO", rule("ALLOW", condition("EQ", 3, index=0), condition("MASKED_EQ", 0xFF00, 0x4600))
    ),
    "any fd but one": profile("ERRNO", rule("ALLOW", condition("NE", 3, index=0))),
    "twice the command": profile(
        "ERRNO", rule("ALLOW", condition("EQ", TCGETS), condition("EQ", EQ_FIRST_PAIR))
    ),
    "up to": profile("ERRNO", rule("ALLOW", condition("LE", 0xFFFF))),
    "below": profile("ERRNO", rule("ALLOW", condition("LT", 0x5500))),
    "shared entry": profile(
        "ERRNO", rule("ALLOW", condition("EQ", 25), names=("read", "ioctl", "personality"))
    ),
    "io_uring by condition": profile(
        "ERRNO", rule("ALLOW", condition("LE", 8, index=0), names=("io_uring_setup", "read"))
    ),
    "io_uring denied": profile("ALLOW", rule("KILL_PROCESS", names=("io_uring_setup",))),
    "io_uring denied but to 32-bit programs": profile(
        "ERRNO",
        rule("ALLOW", condition("MASKED_EQ", LOW << 32, 1 << 32, index=0), names=("io_uring_setup",)),
        rule("KILL", names=("io_uring_setup",)),
    ),
    "mmap beside others": profile("KILL_PROCESS", rule("ALLOW", names=("mmap", "munmap", "ioctl"))),
    "mmap logged": profile("ERRNO", rule("LOG", names=("mmap", "mmap2", "read"))),
    "mmap traced by default": profile("TRACE", rule("LOG", names=("mmap",)), errno=7),
    "mmap denied": profile("ALLOW", rule("KILL", names=("mmap",)), rule("ERRNO", names=("mmap2",), errno=5)),
    "mmap outvotes": profile(
        "ERRNO",
        rule("KILL", condition("MASKED_EQ", 4, 4, 2), names=("mmap",)),
        rule("ALLOW", names=("mmap",)),
    ),
    "native only": profile("ERRNO", rule("ALLOW"), abis=(X86_64,)),
    "i386 beside": profile("ALLOW", abis=(X86,)),
}


@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_profiles_are_kept(name: str) -> None:
    of = ORDINARY[name]
    untouched = copy.deepcopy(of)
    result = rewritten(of)
    assert of == untouched
    for how in ({}, {"stub": False}, {"binary_tree": True}):
        check_everywhere(of, result, **how)
    assert rewritten(result) == result
    assert rewritten(result, "other") == {**result, "listenerMetadata": "other"}
    assert json.loads(json.dumps(result)) == result


MANY_VALUES = tuple(condition("MASKED_EQ", 1 << bit, 1 << bit, 0) for bit in range(25, 32))


def calls_of_each_rule(of: Profile) -> Iterator[Call]:
    """Each system call of a profile, on each ABI, with the values that its rules compare and others."""
    for entry in of["syscalls"]:
        args = entry.get("args") or []
        values = {
            value & ALL
            for arg in args
            for value in (arg["value"], arg["value"] - 1, arg.get("valueTwo", 0), ALL)
        }
        for name in entry["names"]:
            for abi in ABIS:
                nr = syscall_number(name, abi)
                for value in sorted({0, 1, *values}) if nr >= 0 else ():
                    low = value if abi != X86 else value & LOW
                    yield from ((abi, nr, (low, low, other, low, low, low)) for other in (0, 9))


def test_each_rule_of_crios_profile_is_kept() -> None:
    of = crio_default()
    for how in ({}, {"stub": False}, {"binary_tree": True}):
        before, after = Filter(of, **how), Filter(rewritten(of), **how)
        for call in calls_of_each_rule(of):
            check(before, after, call)


@pytest.mark.parametrize(
    "other",
    [
        rule("ALLOW", *MANY_VALUES, names=("clone",)),
        rule("ALLOW", {"index": 9, "op": "SCMP_CMP_SOMETIMES"}, names=("clone", "clone3")),
        {"names": ["clone"], "action": "SCMP_ACT_ALLOW", "args": 7},
    ],
)
def test_rules_of_other_calls_are_not_read(other: Profile) -> None:
    assert other in rewritten(profile("ERRNO", rule("ALLOW"), other))["syscalls"]


def test_rule_for_our_calls_and_others_is_split_by_name() -> None:
    of = profile("ERRNO", rule("ALLOW", condition("NE", TIOCSTI), names=("clone", "ioctl", "personality")))
    result = rewritten(of)["syscalls"]
    assert rule("ALLOW", condition("NE", TIOCSTI), names=("clone", "personality")) in result
    assert not [entry for entry in result if "ioctl" in entry["names"] and entry["names"] != ["ioctl"]]


def test_default_profile_notifies_and_names_the_listener() -> None:
    result = rewritten(engine_default(), "0123")
    assert result["listenerPath"] == LISTENER
    assert result["listenerMetadata"] == "0123"
    assert Filter(result).decide(X86_64, 16, (3, EQ_FIRST_PAIR, 0, 0, 0, 0)) == NOTIFY


def test_logged_call_that_is_notified_leaves_nothing_for_a_second_rewrite() -> None:
    of = profile("ALLOW", rule("LOG", condition("EQ", EQ_FIRST_PAIR)))
    once = rewritten(of)
    assert rewritten(once, "other") == {**once, "listenerMetadata": "other"}


def test_empty_section_is_unconfined() -> None:
    assert rewritten({}) == rewritten(None)


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
@given(profiles(), st.booleans(), st.data())
def test_random_profile_keeps_its_verdicts(of: Profile, tree: bool, data: st.DataObject) -> None:
    try:
        before = Filter(of, binary_tree=tree)
    except Rejected:
        assume(False)
    try:
        once = rewritten(of)
    except Refusal as refusal:
        event(refusal.message[:60])
        return
    event("rewritten")
    assert rewritten(once, "other") == {**once, "listenerMetadata": "other"}
    after = Filter(once, binary_tree=tree)
    assert len(after.program) <= MAX_INSTRUCTIONS
    for call in data.draw(st.lists(calls(of), min_size=20, max_size=60)):
        check(before, after, call)


def test_listener_that_no_rule_asks_for_is_none() -> None:
    of = engine_default()
    assert rewritten({**of, "listenerPath": "/run/other.sock"}, "m") == rewritten(of, "m")


REFUSED: dict[str, tuple[Profile, str]] = {
    "foreign listener": (
        {**profile("ERRNO", rule("NOTIFY", names=("mount",))), "listenerPath": "/run/other.sock"},
        "listenerPath of its own",
    ),
    "notify without listener": (
        profile("ERRNO", rule("NOTIFY", names=("mount",))),
        "without a listenerPath",
    ),
    "notify of its own": (
        {**profile("ERRNO", rule("NOTIFY", names=("mount",))), "listenerPath": LISTENER},
        "NOTIFY rules of its own",
    ),
    "notify of other ioctls": (
        {**profile("ERRNO", rule("NOTIFY", condition("EQ", TIOCSTI))), "listenerPath": LISTENER},
        "NOTIFY rules of its own",
    ),
    "notify by default": (profile("NOTIFY"), "notifies by default"),
    "notify of other mappings": (
        {
            **profile("ERRNO", rule("NOTIFY", condition("EQ", 0, 0, 5), names=("mmap",))),
            "listenerPath": LISTENER,
        },
        "NOTIFY rules of its own",
    ),
    "mappings by condition": (
        profile("ALLOW", rule("ERRNO", condition("MASKED_EQ", 6, 6, 2), names=("mmap",))),
        "rules for mmap with conditions",
    ),
    "mappings by the upper half": (
        profile("ALLOW", rule("ERRNO", condition("MASKED_EQ", LOW << 32, 0, 5), names=("mmap",))),
        "rule for mmap on the upper half",
    ),
    "disagreeing rules": (
        profile(
            "KILL", rule("ALLOW", condition("GE", 0, index=2)), rule("ERRNO", condition("EQ", EQ_FIRST_PAIR))
        ),
        "different actions",
    ),
    "disagreeing rules in 32-bit programs": (
        profile(
            "KILL",
            rule("ALLOW", condition("MASKED_EQ", 0xFF | 1 << 32, 0x2B | 1 << 32)),
            rule("ERRNO", condition("MASKED_EQ", 0xFFFF | 1 << 32, 0x462B)),
        ),
        "different actions",
    ),
    "denied by fd": (profile("ALLOW", rule("ERRNO", condition("EQ", 3, index=0))), "another argument"),
    "upper half": (profile("ALLOW", rule("ERRNO", condition("MASKED_EQ", LOW << 32, 0))), "upper half"),
    "upper half before a denial": (
        profile("ERRNO", rule("ALLOW", condition("MASKED_EQ", LOW << 32, 0)), rule("KILL")),
        "upper half",
    ),
    "large bound": (profile("ERRNO", rule("ALLOW", condition("GE", 1 << 32))), "more than 32 bits"),
    "too large": (
        profile(
            "ERRNO",
            *(rule("ALLOW", condition("NE", value), condition("EQ", value, index=0)) for value in range(60)),
        ),
        "filter instructions",
    ),
    "far too large": (
        profile("ERRNO", *(rule("ALLOW", condition("GE", 0x77777777 + value)) for value in range(2000))),
        "filter instructions",
    ),
    "unknown action": (profile("FORGET"), "not an action"),
    "unknown operator": (profile("ERRNO", rule("ALLOW", condition("IS", 1))), "unknown operator"),
    "not a number": (
        profile("ERRNO", rule("ALLOW", {"index": 1, "value": "1", "op": "SCMP_CMP_EQ"})),
        "unsigned",
    ),
    "negative": (profile("ERRNO", rule("ALLOW", condition("EQ", -1))), "unsigned"),
    "seventh argument": (profile("ERRNO", rule("ALLOW", condition("EQ", 1, index=6))), "argument 6"),
    **{
        f"many conditions on {name}": (
            profile("ERRNO", rule("ALLOW", *MANY_VALUES, names=("clone", name))),
            "more than 6",
        )
        for name in ("ioctl", "mmap", "mmap2", "io_uring_setup", "remap_file_pages")
    },
    "no default": ({"syscalls": [rule("ALLOW")]}, "defaultAction"),
    "no names": (profile("ERRNO", {"action": "SCMP_ACT_ALLOW"}), "list of names"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_are_one_plain_line(name: str) -> None:
    of, words = REFUSED[name]
    with pytest.raises(Refusal) as raised:
        rewritten(of)
    assert raised.value.code == "seccomp-profile"
    assert words in raised.value.message
    assert "\n" not in raised.value.line()


@pytest.mark.parametrize(
    "member",
    [
        {"syscalls": {}},
        {"syscalls": ["ioctl"]},
        {"syscalls": [{"names": "ioctl", "action": "SCMP_ACT_ALLOW"}]},
        {"syscalls": [{"names": [{}], "action": "SCMP_ACT_ALLOW"}]},
        {"flags": 2},
        {"flags": [["SECCOMP_FILTER_FLAG_LOG"]]},
        {"architectures": 1},
        {"architectures": [{}]},
    ],
)
def test_wrong_types_in_a_profile_are_refused(member: Profile) -> None:
    with pytest.raises(Refusal) as raised:
        rewritten({**profile("ALLOW"), **member})
    assert raised.value.code == "bad-spec"


def test_tsync_goes_and_other_flags_stay() -> None:
    of = {**profile("ALLOW"), "flags": ["SECCOMP_FILTER_FLAG_TSYNC", "SECCOMP_FILTER_FLAG_LOG"]}
    assert rewritten(of)["flags"] == ["SECCOMP_FILTER_FLAG_LOG"]


@pytest.mark.parametrize("name", ORDINARY)
def test_estimate_is_not_too_low(name: str) -> None:
    result = rewritten(ORDINARY[name])
    assert len(Filter(result).program) <= estimate(result)


def test_upper_bits_of_the_command_hide_nothing() -> None:
    """The kernel drops them, so a filter that looked at them would be walked around."""
    after = Filter(rewritten(engine_default()))
    for high in (1 << 32, 1 << 63, LOW << 32):
        assert after.decide(X86_64, 16, (3, EQ_FIRST_PAIR | high, 0, 0, 0, 0)) == NOTIFY
        assert after.decide(X86_64, 16, (3, 0xC01046D3 | high, 0, 0, 0, 0)) == NOTIFY
        assert after.decide(X86_64, 16, (3, (TCGETS | high) & ALL, 0, 0, 0, 0)) & ACTION_MASK in PERMISSIVE


def test_annotation_that_replaces_the_filter_is_refused() -> None:
    check_annotations({"run.oci.keep_original_groups": "1"})
    with pytest.raises(Refusal, match=r"run\.oci\.seccomp_bpf_data") as raised:
        check_annotations({"run.oci.seccomp_bpf_data": "AAAA"})
    assert raised.value.code == "seccomp-profile"
