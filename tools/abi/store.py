"""The facts of all known versions, as the project keeps them: one row for as many versions in a row as say
the same.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tools.abi.problem import Problem
from tools.abi.release import KINDS, NONE, Key, Release, Value, order
from tools.abi.tables import FACTS, rows

VERSIONS = "versions.tsv"
FILES = {kind: f"{kind}.tsv" for kind in KINDS}


@dataclass
class Store:
    """releases: by version, oldest first."""

    releases: dict[str, Release] = field(default_factory=dict)

    @property
    def versions(self) -> list[str]:
        return list(self.releases)

    @property
    def newest(self) -> Release:
        return self.releases[self.versions[-1]]

    def add(self, release: Release) -> None:
        found = {**self.releases, release.version: release}
        self.releases = {version: found[version] for version in sorted(found, key=order)}

    def value(self, kind: str, key: Key, version: str) -> Value | None:
        return self.releases[version].facts[kind].get(key)

    def keys(self, kind: str) -> list[Key]:
        found: dict[Key, None] = {}
        for release in self.releases.values():
            found.update(dict.fromkeys(release.facts[kind]))
        return list(found)

    def around(self, version: str) -> tuple[Release | None, Release | None]:
        """The nearest complete known releases that are not newer, and not older."""
        whole = [release for release in self.releases.values() if release.complete]
        before = [release for release in whole if order(release.version) <= order(version)]
        after = [release for release in whole if order(release.version) >= order(version)]
        return before[-1] if before else None, after[0] if after else None


def _runs(store: Store, kind: str) -> Iterator[tuple[Key, Value, str, str]]:
    """key, value, first and last version. The last known version is said as "-": no end is known."""
    versions = store.versions
    for key in sorted(store.keys(kind)):
        run: tuple[Value, int, int] | None = None
        for at, version in enumerate(versions):
            value = store.value(kind, key, version)
            if run is not None and value != run[0]:
                yield key, run[0], versions[run[1]], versions[run[2]]
                run = None
            if value is not None:
                run = (value, run[1] if run else at, at)
        if run is not None:
            last = NONE if run[2] == len(versions) - 1 else versions[run[2]]
            yield key, run[0], versions[run[1]], last


def save(store: Store, folder: Path = FACTS) -> None:
    listed = [
        (version, "complete" if release.complete else "incomplete", release.source)
        for version, release in store.releases.items()
    ]
    _write(folder / VERSIONS, ("version", "facts", "source"), listed)
    for kind, (keys, values) in KINDS.items():
        found = [(*key, *value, since, last) for key, value, since, last in _runs(store, kind)]
        _write(folder / FILES[kind], (*keys, *values, "since", "last"), found)


def _write(path: Path, head: tuple[str, ...], body: Iterable[tuple[str, ...]]) -> None:
    path.write_text("".join("\t".join(row) + "\n" for row in (head, *body)))


def load(folder: Path = FACTS) -> Store:
    """Problem: a row that does not say what its head says."""
    store = Store()
    for version, completeness, source in rows(folder / VERSIONS):
        store.releases[version] = Release(version, source, completeness == "complete")
    versions = store.versions
    places = {version: at for at, version in enumerate(versions)}
    for kind, (keys, values) in KINDS.items():
        path = folder / FILES[kind]
        for line, row in enumerate(rows(path), start=2):
            if len(row) != len(keys) + len(values) + 2 or row[-2] not in places:
                raise Problem(
                    f"{path}:{line}: not a row of this table: make it anew with python -m tools.abi rebuild"
                )
            key, value = tuple(row[: len(keys)]), tuple(row[len(keys) : -2])
            last = len(versions) - 1 if row[-1] == NONE else places[row[-1]]
            for version in versions[places[row[-2]] : last + 1]:
                store.releases[version].facts[kind][key] = value
    return store
