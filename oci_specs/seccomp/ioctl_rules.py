"""The ioctl rules of a profile: the watched commands out of what it lets through.

libseccomp 2.5 and 2.6, as runc and crun drive them: a rule whose action is the default one is skipped; the
first unconditional rule of a system call wins and the conditional ones beside it count for nothing; which of
several conditional rules wins when they disagree depends on how libseccomp sorts them. So only conditional
rules are written here that agree or cannot both match, and what the profile leaves no way to keep exactly is
refused.
"""

from __future__ import annotations

from oci_specs.seccomp import broad
from oci_specs.seccomp.actions import NOTIFY, PERMISSIVE, action
from oci_specs.seccomp.complement import COMPLEMENT
from oci_specs.seccomp.conditions import (
    COMMAND,
    MAX_PARTS,
    absorbed,
    disjoint,
    low_words,
    meet_parts,
    negated,
    on_64_bit_abis,
    parts,
    read,
    refuse,
    too_many,
    upper_only,
    without_cubes,
    write,
)
from oci_specs.seccomp.cubes import overlap, within
from oci_specs.seccomp.notified import NOTIFY_CUBES, REFUSED_CUBES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

    from oci_specs.seccomp.actions import Action
    from oci_specs.seccomp.conditions import Condition, Part
    from oci_specs.seccomp.cubes import Cube

    Entry = dict[str, Any]
    Conjunction = tuple[Condition, ...]
    # One rule as libseccomp gets it: the index of its entry, its action, its conditions.
    Rule = tuple[int, Action, Conjunction]
    # Commands that are left alone, and those that are notified: together all.
    Sets = tuple[list[Part], list[Part]]

IOCTL = "ioctl"


def _any_abi(cubes: Iterable[Cube]) -> list[Part]:
    """cubes as parts, in the order of `absorbed`."""
    return [(mask, datum, False) for mask, datum in sorted(cubes, key=lambda cube: (-cube[1], cube[0]))]


# Commands that are notified and let go on are neither logged nor traced. So a profile that does either
# gets the exact lists.
EXACT: Sets = _any_abi(COMPLEMENT), _any_abi(NOTIFY_CUBES + REFUSED_CUBES)
BROAD: Sets = _any_abi(broad.LEFT_ALONE), _any_abi(broad.NOTIFIED)
NOTIFY_VERDICT: Entry = {"action": NOTIFY}


def rules_of(entries: Sequence[Entry], name: str, default: Action) -> list[Rule]:
    """The rules of a system call that libseccomp gets, in order."""
    found = []
    for index, entry in enumerate(entries):
        if name in entry["names"]:
            verdict = action(entry, "action", "errnoRet")
            if verdict != default:
                found += [(index, verdict, conditions) for conditions in read(entry.get("args"))]
    return found


def replace(entries: Sequence[Entry], name: str, replaced: dict[int, list[Entry]]) -> list[Entry]:
    """entries, where those in replaced lose name and are followed by the new ones."""
    made: list[Entry] = []
    for index, entry in enumerate(entries):
        if index not in replaced:
            made.append(entry)
            continue
        others = [other for other in entry["names"] if other != name]
        if others:
            made.append({**entry, "names": others})
        made += replaced[index]
    return made


def _sets(verdicts: Iterable[Action]) -> Sets:
    """The sets for a profile that decides on ioctl with verdicts."""
    return BROAD if all(kind == "ALLOW" or kind not in PERMISSIVE for kind, _ in verdicts) else EXACT


def rewrite_ioctl(entries: list[Entry], default: Action) -> list[Entry]:
    """entries, where the watched calls that were let through are notified."""
    rules = rules_of(entries, IOCTL, default)
    if any(upper_only(conditions) for _, _, conditions in rules):
        raise refuse("has an ioctl rule on the upper half of an argument, which 32-bit programs always meet")
    for index, verdict, conditions in rules:
        if not conditions:
            if verdict[0] not in PERMISSIVE:
                return entries
            # It decides alone today. It becomes conditional, so the rules that it outvotes must go.
            replaced: dict[int, list[Entry]] = {other: [] for other, _, _ in rules}
            sets = _sets((default, verdict))
            replaced[index] = _rest(sets, _verdict(entries[index]), ())
            return [*replace(entries, IOCTL, replaced), *_entries(NOTIFY_VERDICT, sets[1])]
    # A rule for what is notified in any case is gone afterwards, and tells nothing apart.
    sets = _sets(
        (default, *(verdict for _, verdict, conditions in rules if not _within(EXACT[1], conditions)))
    )
    if default[0] in PERMISSIVE:
        ours = [entry for entry in entries if entry.get("action") == NOTIFY and entry["names"] == [IOCTL]]
        return _permissive_default(sets, [entry for entry in entries if entry not in ours], default)
    return _split_rules(sets, entries, rules, _split)


def only_notified(conditions: Conjunction) -> bool:
    """Every call that meets conditions is in the notified set."""
    return _within(BROAD[1], conditions)


def _within(commands: Sequence[Part], conditions: Conjunction) -> bool:
    return all(any(within(part[:2], one[:2]) for one in commands) for part in _commands(conditions))


def _commands(conditions: Conjunction) -> list[Part]:
    """The values of the command that may meet conditions."""
    for condition in conditions:
        if condition[0] == COMMAND:
            return parts(condition)
    return [(0, 0, False)]


def _touches(sets: Sets, conditions: Conjunction) -> bool:
    """True if a notified command may meet conditions."""
    return any(overlap(part[:2], one[:2]) for part in _commands(conditions) for one in sets[1])


def _verdict(entry: Entry) -> Entry:
    """The keys of entry that give its action."""
    return {key: entry[key] for key in ("action", "errnoRet") if key in entry}


def _entry(verdict: Entry, conditions: Conjunction) -> Entry:
    return {"names": [IOCTL], **verdict, "args": write(conditions)}


def _entries(verdict: Entry, values: Iterable[Part], rest: Conjunction = ()) -> list[Entry]:
    """Rules for the commands in values that also meet rest."""
    made = []
    for mask, datum, wide in values:
        conditions = tuple(sorted((*rest, (COMMAND, "MASKED_EQ", mask, datum))))
        made += [_entry(verdict, each) for each in (on_64_bit_abis(conditions) if wide else (conditions,))]
    return made


def _without(values: Sequence[Part], condition: Condition) -> list[Part]:
    """values but those that meet condition, a condition on the command."""
    met, unmet = parts(condition), negated(condition)
    found: list[Part] = []
    for part in values:
        found += (
            meet_parts((part,), unmet) if any(overlap(part[:2], other[:2]) for other in met) else (part,)
        )
    return absorbed(found)


def _meeting(values: Sequence[Part], conditions: Conjunction) -> list[Part]:
    """The values that pass the condition on the command, if there is one."""
    for condition in conditions:
        if condition[0] == COMMAND:
            if condition[1] == "NE":
                # All but one: most cubes stay whole, where meeting the many cubes around that one would split
                # them.
                return _without(values, (COMMAND, "EQ", *condition[2:]))
            return absorbed(meet_parts(parts(condition), values))
    return list(values)


def _rest(sets: Sets, verdict: Entry, conditions: Conjunction) -> list[Entry]:
    """A permissive rule without the commands that are notified."""
    others = tuple(condition for condition in conditions if condition[0] != COMMAND)
    return _entries(verdict, _meeting(sets[0], conditions), others)


def _split(sets: Sets, verdict: Entry, conditions: Conjunction) -> list[Entry]:
    """A permissive rule without the commands that are notified, and rules for those that it let through."""
    others = tuple(condition for condition in conditions if condition[0] != COMMAND)
    return [
        *_rest(sets, verdict, conditions),
        *_entries(NOTIFY_VERDICT, _meeting(sets[1], conditions), others),
    ]


def _split_rules(
    sets: Sets,
    entries: list[Entry],
    rules: list[Rule],
    split: Callable[[Sets, Entry, Conjunction], list[Entry]],
) -> list[Entry]:
    """entries, with the permissive rules that let through what is notified split in place."""
    replaced: dict[int, list[Entry]] = {}
    for index, verdict, conditions in rules:
        if verdict[0] in PERMISSIVE and _touches(sets, conditions):
            if any(other != verdict and not disjoint(conditions, theirs) for _, other, theirs in rules):
                raise refuse("has ioctl rules with different actions for the same NVIDIA calls")
            replaced[index] = []
    for index, made in replaced.items():
        verdict_keys = _verdict(entries[index])
        for conditions in read(entries[index].get("args")):
            if _touches(sets, conditions):
                made += split(sets, verdict_keys, conditions)
            else:
                made.append(_entry(verdict_keys, conditions))
        if sum(map(len, replaced.values())) > MAX_PARTS:
            raise too_many()
    return replace(entries, IOCTL, replaced)


def _permissive_default(sets: Sets, entries: list[Entry], default: Action) -> list[Entry]:
    """What no rule denies is let through, so the watched commands that no rule denies need rules of their
    own.

    A denied command is denied whatever is in the upper half of the argument, which the kernel drops: nothing
    of the set may depend on how libseccomp tells such values apart.
    """
    rules = rules_of(entries, IOCTL, default)
    notified = sets[1]
    denials: list[Entry] = []
    taken = [entries[index].get("args") for index, verdict, _ in rules if verdict[0] not in PERMISSIVE]
    for index, verdict, conditions in rules:
        if verdict[0] in PERMISSIVE or not _touches(sets, conditions):
            continue
        if len(conditions) != 1 or conditions[0][0] != COMMAND:
            raise refuse("denies NVIDIA calls by a condition on another argument of ioctl than the command")
        denied = low_words(parts(conditions[0]))
        for made in _entries(_verdict(entries[index]), absorbed(meet_parts(denied, sets[1]))):
            # libseccomp takes no two rules with the same conditions; denied by another rule is denied as
            # well.
            if made["args"] not in taken:
                taken.append(made["args"])
                denials.append(made)
        notified = without_cubes(notified, denied)
    return [*_split_rules(sets, entries, rules, _rest), *denials, *_entries(NOTIFY_VERDICT, notified)]
