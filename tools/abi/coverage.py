"""docs/coverage.md: what becomes of each call that gVisor's nvproxy lets containers make, by branch."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from tools.abi.interface import Interface
from tools.abi.problem import Problem
from tools.abi.release import NONE, order
from tools.abi.store import Store
from tools.abi.tables import FACTS, REPOSITORY, rows

PAGE = REPOSITORY / "docs" / "coverage.md"
FIRST_TABLE = "\n## Chips\n"
OBSERVED = REPOSITORY / "tests" / "recordings" / "observed-610.tsv"
BRANCHES = (535, 550, 570, 580, 610)
KINDS = {
    "escape": "Escapes",
    "uvm": "Commands of nvidia-uvm",
    "class": "Classes",
    "control": "Controls",
}
SERVED, WHOLE, ANSWERED, REFUSED, ABSENT = "served", "whole", "answered", "refused", ""
COMPUTE = "compute"
GRANTS = ("share", "several", "whole")


@dataclass(frozen=True)
class Call:
    """A call of nvproxy's. outcomes: by branch. capability: that a container is to have for it. peers: it is
    for containers with several GPUs.
    """

    kind: str
    symbol: str
    number: int
    capabilities: str
    outcomes: dict[int, str]
    capability: str = ""
    peers: bool = False

    @property
    def is_refused(self) -> bool:
        """To a share, by some driver."""
        return bool({REFUSED, WHOLE} & set(self.outcomes.values()))

    def by(self, grant: str, branch: int) -> str:
        """What a container with such a grant gets."""
        found = self.outcomes[branch]
        if self.peers and grant == "share":
            return REFUSED
        return found if found != WHOLE else SERVED if grant == "whole" else REFUSED

    def to(self, grant: str) -> str:
        """Whether it is served on every driver that has it, and by which driver capability."""
        given = {self.by(grant, branch) for branch, found in self.outcomes.items() if found}
        return "no" if given == {REFUSED} else "in part" if REFUSED in given else self.capability or "yes"


def outcome(interface: Interface, kind: str, number: int, version: str) -> str:
    found = [
        row for row in interface.rows if row.kind == kind and row.number == number and row.applies(version)
    ]
    if not found or any(row.is_refused for row in found):
        return REFUSED
    if any(row.whole for row in found):
        return WHOLE
    return ANSWERED if any(row.disposition == "ANSWERED" for row in found) else SERVED


def calls(interface: Interface, store: Store, folder: Path = FACTS) -> list[Call]:
    versions = {branch: _version(store, branch) for branch in BRANCHES}
    needed = {(row.kind, row.number): (row.capability, row.peers) for row in reversed(interface.rows)}
    found: dict[tuple[str, str, int], Call] = {}
    for kind, symbol, text, capabilities, since, until in rows(folder / "nvproxy.tsv"):
        if text == NONE:
            continue
        number = int(text, 16)
        call = found.setdefault(
            (kind, symbol, number),
            Call(
                kind,
                symbol,
                number,
                capabilities,
                dict.fromkeys(BRANCHES, ABSENT),
                *needed.get((kind, number), ("", False)),
            ),
        )
        for branch, version in versions.items():
            if order(since) <= order(version) and (until == NONE or order(version) < order(until)):
                call.outcomes[branch] = outcome(interface, kind, number, version)
    return sorted(
        (call for call in found.values() if any(call.outcomes.values())),
        key=lambda call: (list(KINDS).index(call.kind), call.number, call.symbol),
    )


def _version(store: Store, branch: int) -> str:
    known = [version for version in store.versions if version.startswith(f"{branch}.")]
    if not known:
        raise Problem(f"{branch}: no driver of this branch is known: python -m tools.abi add TREE")
    return known[-1]


def reasons(folder: Path = FACTS) -> list[tuple[str, str, str]]:
    """kind, what it is the reason for (a pattern of symbols, or @ and nvproxy's capabilities), and the
    reason.
    """
    return [(kind, match, reason) for kind, match, reason in rows(folder / "reasons.tsv")]


def _is_for(kind: str, match: str, call: Call) -> bool:
    if kind not in ("*", call.kind):
        return False
    return call.capabilities == match[1:] if match.startswith("@") else fnmatchcase(call.symbol, match)


def reason(call: Call, table: list[tuple[str, str, str]]) -> str | None:
    return next((text for kind, match, text in table if _is_for(kind, match, call)), None)


def amiss(found: list[Call], table: list[tuple[str, str, str]]) -> list[str]:
    """Refusals without a reason, and reasons for nothing."""
    refused = [call for call in found if call.is_refused]
    wrong = [
        f"{call.kind} {call.symbol}: refused without a reason" for call in refused if not reason(call, table)
    ]
    wrong += [
        f"{kind} {match}: a reason, and nothing like it is refused"
        for kind, match, _ in table
        if not any(_is_for(kind, match, call) for call in refused)
    ]
    return wrong


def page(interface: Interface, store: Store) -> str:
    """What people write stays: all above the first table."""
    found, table = calls(interface, store), reasons()
    head = PAGE.read_text().partition(FIRST_TABLE)[0]
    return head + "".join([*_chips(), *_counts(found), *_listed(found, table), *_observed()])


def _chips(folder: Path = FACTS) -> Iterator[str]:
    """Those of which the same is known, and from the same source, in a row."""
    yield f"{FIRST_TABLE}\nHow the scheduler sees work on each chip, from `chips.tsv` and `userd.tsv` of "
    yield "`native_sched/nvidia/rm/facts`, and what suspends it. A chip that is not here is blind: "
    yield "[scheduler.md](scheduler.md#the-loop).\n\n"
    yield "| chips | work seen by | idle seen by | suspended by | source |\n|---|---|---|---|---|\n"
    found: dict[tuple[str, str], list[str]] = {}
    for name, _, _, of, status, stride, words, _, has_get, source in rows(folder / "chips.tsv"):
        fetched = "GP_PUT and GP_GET" if has_get == "yes" else "GP_PUT, since USERD has no GP_GET"
        where = f"of {'all engines' if of == 'card' else 'each runlist'}, {words} at {status} + {stride} i"
        found.setdefault((f"{fetched}; status words {where}", source), []).append(name)
    for (work, source), names in found.items():
        by = "DISABLE_CHANNELS, else the runlist"
        yield f"| {', '.join(names)} | {work} | status words, else RM's samples of use | {by} | {source} |\n"


def _counts(found: list[Call]) -> Iterator[str]:
    yield "\n## Counts\n\nserved / to whole cards alone / answered / refused; "
    yield "in brackets what nvproxy has for compute and\nutilities.\n\n"
    yield f"| | {' | '.join(map(str, BRANCHES))} |\n|---|{'---|' * len(BRANCHES)}\n"
    for kind, title in KINDS.items():
        cells = []
        for branch in BRANCHES:
            every = Counter(call.outcomes[branch] for call in found if call.kind == kind)
            compute = Counter(
                call.outcomes[branch] for call in found if call.kind == kind and COMPUTE in call.capabilities
            )
            cells.append(f"{_each(every)} ({_each(compute)})")
        yield f"| {title} | {' | '.join(cells)} |\n"


def _each(count: Counter[str]) -> str:
    return " / ".join(str(count[outcome]) for outcome in (SERVED, WHOLE, ANSWERED, REFUSED))


def _listed(found: list[Call], table: list[tuple[str, str, str]]) -> Iterator[str]:
    for kind, title in KINDS.items():
        columns = ["symbol", "number", *map(str, BRANCHES), *GRANTS, "why not"]
        yield f"\n## {title}\n\n| {' | '.join(columns)} |\n"
        yield f"|{'---|' * len(columns)}\n"
        for call in found:
            if call.kind == kind:
                cells = " | ".join(call.outcomes[branch] for branch in BRANCHES)
                why = (reason(call, table) or "") if call.is_refused else ""
                grants = " | ".join(map(call.to, GRANTS))
                yield f"| {call.symbol} | {call.number:#x} | {cells} | {grants} | {why} |\n"


def _observed() -> Iterator[str]:
    """tests/recordings compares these with the rows."""
    refused: dict[str, list[str]] = {}
    count = 0
    for kind, number, symbol, _, by, why in rows(OBSERVED):
        count += 1
        if why != NONE:
            name = f"{kind} {number}" if symbol == NONE else f"{symbol} ({number})"
            refused.setdefault(why, []).append(f"{name} by {by.replace(',', ', ')}")
    yield (
        "\n## What NVIDIA's libraries asked of 610.57.04\n\n"
        f"{count} calls of CUDA, OpenCL and NVML in a public recording on an RTX 2070; "
        f"{sum(map(len, refused.values()))} are refused to a share.\n\n| why not | calls |\n|---|---|\n"
    )
    for why, names in refused.items():
        yield f"| {why} | {'; '.join(names)} |\n"
