"""Rewrites a container's seccomp profile: NVIDIA calls go to the mediator, all else is decided as before."""

from __future__ import annotations

from oci_specs.members import member_objects, member_strings
from oci_specs.seccomp.actions import ERRNO, NOTIFY, PERMISSIVE, action
from oci_specs.seccomp.conditions import read, refuse, upper_only
from oci_specs.seccomp.ioctl_rules import IOCTL, only_notified, replace, rewrite_ioctl, rules_of
from oci_specs.seccomp.mmap_rules import only_ours, rewrite_mmap
from oci_specs.seccomp.refused import REFUSED_ERRNO, REFUSED_SYSCALLS
from oci_specs.seccomp.size import check_size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from oci_specs.seccomp.actions import Action
    from oci_specs.seccomp.ioctl_rules import Entry

# The ABIs that an x86-64 kernel serves; without the last two, libseccomp kills what i386 and x32 programs do.
UNCONFINED_ARCHITECTURES = ("SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32")
# Both runtimes load the filter in a process with one thread, where this flag means nothing, and the kernel
# does not take it together with a listener.
TSYNC = "SECCOMP_FILTER_FLAG_TSYNC"


def rewrite(profile: dict[str, Any] | None, *, listener_path: str, metadata: str) -> dict[str, Any]:
    """The OCI `linux.seccomp` of a container under a grant.

    profile is the container's own, None when it runs unconfined; it is not changed. Calls of the notified set
    that it allows, logs or traces are notified on listener_path with metadata; those that it denies stay
    denied, so a profile that denies all of them yields a filter without a listener. Rewriting a result again
    changes the metadata alone. Raises Refusal (code "seccomp-profile") for what cannot be kept exactly.
    """
    # runc takes a section without content for no section; crun refuses it.
    if profile is None or not (profile.get("defaultAction") or profile.get("syscalls")):
        profile = {"defaultAction": "SCMP_ACT_ALLOW", "architectures": list(UNCONFINED_ARCHITECTURES)}
    entries = _entries(profile)
    default = action(profile, "defaultAction", "defaultErrnoRet")
    _check_listener(profile, entries, default, listener_path)
    for name in REFUSED_SYSCALLS:
        entries = _refuse_syscall(entries, name, default)
    entries = rewrite_mmap(rewrite_ioctl(entries, default), default)
    rewritten = {**profile, "listenerPath": listener_path, "listenerMetadata": metadata, "syscalls": entries}
    flags = member_strings(profile, "flags")
    if TSYNC in flags:
        rewritten["flags"] = [flag for flag in flags if flag != TSYNC]
    check_size(rewritten)
    return rewritten


def hands_on_with(profile: dict[str, Any], name: str) -> bool:
    """Whether a rewritten profile lets a call through that a runtime makes to hand on the listener."""
    entries = _entries(profile)
    default = action(profile, "defaultAction", "defaultErrnoRet")
    return all(entry.get("action") != NOTIFY for entry in entries) or _may_pass(entries, name, default)


def _entries(profile: dict[str, Any]) -> list[Entry]:
    entries = member_objects(profile, "syscalls")
    for entry in entries:
        if entry.get("names") is None:
            raise refuse("has a rule without a list of names")
        member_strings(entry, "names")
    return entries


def _check_listener(
    profile: dict[str, Any], entries: list[Entry], default: Action, listener_path: str
) -> None:
    """Nothing but an earlier rewrite may have asked for a listener: a process has one at most. A path without
    a rule that notifies asks for none.
    """
    path = profile.get("listenerPath")
    if path and path != listener_path and any(entry.get("action") == NOTIFY for entry in entries):
        raise refuse("has a listenerPath of its own, and a container can have one listener only")
    if default[0] == "NOTIFY":
        raise refuse("notifies by default, which runtimes do not take")
    for entry in entries:
        if entry.get("action") == NOTIFY:
            if not path:
                raise refuse("has SCMP_ACT_NOTIFY rules without a listenerPath")
            rules = read(entry.get("args"))
            if not only_ours(entry["names"], rules) and (
                entry["names"] != [IOCTL] or not all(map(only_notified, rules))
            ):
                raise refuse(
                    "has SCMP_ACT_NOTIFY rules of its own, and a container can have one listener only"
                )


def _refuse_syscall(entries: list[Entry], name: str, default: Action) -> list[Entry]:
    """entries, with an unconditional errno for a system call that is not denied already whatever its
    arguments.
    """
    if not _may_pass(entries, name, default):
        return entries
    replaced: dict[int, list[Entry]] = {
        index: [] for index, entry in enumerate(entries) if name in entry["names"]
    }
    refusal: Entry = {"names": [name], "action": ERRNO, "errnoRet": REFUSED_ERRNO}
    return [*replace(entries, name, replaced), refusal]


def _may_pass(entries: list[Entry], name: str, default: Action) -> bool:
    """Whether a system call is made with any arguments at all."""
    rules = rules_of(entries, name, default)
    verdicts = [default, *(verdict for _, verdict, _ in rules)]
    # A condition on an upper half alone is no condition on 32-bit ABIs, where another rule is the first
    # without one.
    if not any(upper_only(conditions) for _, _, conditions in rules):
        verdicts = next(([verdict] for _, verdict, conditions in rules if not conditions), verdicts)
    return any(kind in PERMISSIVE for kind, _ in verdicts)
