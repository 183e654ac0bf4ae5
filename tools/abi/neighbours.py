"""A driver's facts judged by those of the known drivers around it: what holds on both sides holds in between."""

from __future__ import annotations

from dataclasses import dataclass, field

from tools.abi.problem import Problem
from tools.abi.release import KINDS, NONE, Release, Value, order
from tools.abi.store import Store


@dataclass
class Verdict:
    """compared: facts that hold on both sides. open: those that changed from one to the other."""

    version: str
    before: str
    after: str
    compared: int = 0
    open: int = 0
    differs: list[str] = field(default_factory=list)

    def line(self) -> str:
        return (
            f"{self.version}: {self.compared} facts compared with {self.before} and {self.after}, "
            f"{len(self.differs)} differ; {self.open} changed between those two"
        )


def judge(store: Store, release: Release) -> Verdict:
    """Problem: no known driver is on one of the sides."""
    before, after = _sides(store, release)
    verdict = Verdict(release.version, before.version, after.version)
    for kind in KINDS:
        old, new, said = before.facts[kind], after.facts[kind], release.facts[kind]
        for key in sorted({*old, *new, *said}):
            if old.get(key) != new.get(key):
                verdict.open += 1
                continue
            known, found = old.get(key), said.get(key)
            if not release.complete and (found is None or known is None):
                continue
            verdict.compared += 1
            if not _same(known, found, release):
                text = f"{kind} {' '.join(key)}: {_shown(found)}, and known as {_shown(known)}"
                verdict.differs.append(text)
    return verdict


def _sides(store: Store, release: Release) -> tuple[Release, Release]:
    """An incomplete newest branch has no known driver after it: it is on both sides of itself."""
    before, after = store.around(release.version)
    same = [known for known in store.releases.values() if known.version == release.version]
    if same:
        return same[0], same[0]
    if before is None or after is None:
        branch = [
            known
            for known in store.releases.values()
            if order(known.version)[0] == order(release.version)[0]
        ]
        if not branch:
            raise Problem(f"{release.version}: no known driver is before it and none after: add it first")
        return branch[0], branch[0]
    return before, after


def _same(known: Value | None, found: Value | None, release: Release) -> bool:
    """Where the size of a struct is not known, the rest counts."""
    if known is None or found is None or release.complete:
        return known == found
    return all(NONE in pair or pair[0] == pair[1] for pair in zip(known, found, strict=True))


def _shown(value: Value | None) -> str:
    return "not there" if value is None else " ".join(value)
