"""A driver's facts judged by those of the known drivers around it: what holds on both sides holds in
between."""

from dataclasses import dataclass, field

from tools.abi.problem import Problem
from tools.abi.release import KINDS, NONE, Key, Release, Value, order
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


def judge(store: Store, release: Release, sides: tuple[Release, Release] | None = None) -> Verdict:
    """sides: those that its version says, unless told. Problem: no known driver is on one of the sides."""
    before, after = sides or _sides(store, release)
    verdict = Verdict(release.version, before.version, after.version)
    for kind in KINDS:
        stated = release.facts[kind]
        for key in sorted({*before.facts[kind], *after.facts[kind], *stated}):
            old, new = _both(before, after, kind, key)
            if not _same(old, new, not (before.complete and after.complete)):
                verdict.open += 1
                continue
            known, found = old if old is not None and NONE not in old[1:] else new, stated.get(key)
            if not release.complete and (found is None or known is None):
                continue
            verdict.compared += 1
            if not _same(known, found, not release.complete):
                text = f"{kind} {' '.join(key)}: {_shown(found)}, and known as {_shown(known)}"
                verdict.differs.append(text)
    return verdict


def _both(before: Release, after: Release, kind: str, key: Key) -> tuple[Value | None, Value | None]:
    """What is known on both sides. One that is incomplete and does not name it says as the other."""
    old, new = before.facts[kind].get(key), after.facts[kind].get(key)
    if old is None and not before.complete:
        old = new
    if new is None and not after.complete:
        new = old
    return old, new


def _sides(store: Store, release: Release) -> tuple[Release, Release]:
    """A known release is on both sides of itself."""
    before, after = store.around(release.version)
    if release.version in store.releases:
        before = after = store.releases[release.version]
    if before is None or after is None:
        raise Problem(f"{release.version}: no known driver is before it and none after: add it first")
    return before, after


def branch(store: Store, major: int) -> tuple[Release, Release]:
    """The first and the last known release of a branch: the sides of one without a stated version."""
    known = [release for release in store.releases.values() if order(release.version)[0] == major]
    if not known:
        raise Problem(f"{major}: no driver of this branch is known: add one first")
    return known[0], known[-1]


def _same(known: Value | None, found: Value | None, loosely: bool) -> bool:
    """loosely: where the size of a struct is not known, the rest counts."""
    if known is None or found is None or not loosely:
        return known == found
    return all(NONE in pair or pair[0] == pair[1] for pair in zip(known, found, strict=True))


def _shown(value: Value | None) -> str:
    return "not there" if value is None else " ".join(value)
