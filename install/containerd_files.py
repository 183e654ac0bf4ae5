"""containerd's configuration as containerd puts it together, and the file in which ours takes effect.

In containerd 1.x an imported file that says anything of the CRI plugin replaces all that files before it said
of it (services/server/config, mergeConfig: values of maps are replaced entirely), so ours has to go into the
file that is the last to speak of it. From 2.0 on tables are merged, whatever version each file has; only
such a containerd reads version 3.
"""

import glob
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from install.toml_text import Toml, at, parsed
from oci_specs.refusal import Refusal

Read = Callable[[Path], str | None]
MERGING_VERSION = 3
CRI_OF_VERSION = {1: "cri", 2: "io.containerd.grpc.v1.cri"}
CRI_FROM_3 = "io.containerd.cri.v1.runtime"
# The plugin that answers a kubelet, in every version.
CRI_SERVICE = "io.containerd.grpc.v1.cri"


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """version: of the main file. documents: every file that is read, in order. cri: the CRI plugin's name.

    merges: whether tables of several files are merged.
    """

    version: int
    cri: str
    documents: Mapping[Path, Toml]
    merges: bool

    def runtimes(self) -> tuple[str, ...]:
        """The keys below which handlers lie."""
        return ("plugins", self.cri, "containerd", "runtimes")

    def _speaks_of_cri(self) -> list[Path]:
        return [
            path
            for path, document in self.documents.items()
            if at(document, ("plugins", self.cri)) is not None
        ]

    def deciding(self) -> Path:
        """The file whose word on the CRI plugin counts in containerd 1.x."""
        return [next(iter(self.documents)), *self._speaks_of_cri()][-1]

    def setting(self, *keys: str) -> Any:
        """A setting of the CRI plugin's; None where no file has it."""
        heard = list(self.documents)[::-1] if self.merges else [self.deciding()]
        documents = [self.documents[path] for path in heard]
        values = (at(one, ("plugins", cri_of(one.get("version", 1)), *keys)) for one in documents)
        return next((value for value in values if value is not None), None)

    def imports(self, path: Path) -> bool:
        """Whether a file at `path` would be read."""
        return any(path.match(pattern) for pattern in self.patterns())

    def patterns(self) -> list[str]:
        return [
            str(pattern if pattern.startswith("/") else parent.parent / pattern)
            for parent, document in self.documents.items()
            for pattern in document.get("imports", [])
        ]


def cri_of(version: int) -> str:
    """The CRI plugin's name in files of a version."""
    return CRI_OF_VERSION.get(version, CRI_FROM_3)


def load(main: Path, read: Read, *, merges: bool = False) -> Loaded:
    """main and what it imports; Refusal where containerd would refuse or the version is not known.

    merges: containerd is known to be 2.0 or newer.
    """
    documents: dict[Path, Toml] = {}
    pending = [main]
    while pending:
        path = pending.pop(0)
        if path in documents:
            continue
        text = read(path)
        if text is None and path != main:
            raise Refusal(
                "bad-config", f"{main} imports {path}, which is not there", "correct it; nothing was changed"
            )
        document = documents[path] = parsed(text or "", path)
        imports = document.get("imports", [])
        if not isinstance(imports, list) or not all(isinstance(each, str) for each in imports):
            raise Refusal(
                "bad-config", f'{path}: "imports" is not a list of paths', "correct it; nothing was changed"
            )
        for pattern in imports:
            pending += _resolved(path, pattern)
    version = documents[main].get("version", 1)
    if not isinstance(version, int) or version < 1:
        raise Refusal("bad-config", f'{main}: "version" is no number', "correct it; nothing was changed")
    return Loaded(
        version=version,
        cri=cri_of(version),
        documents=documents,
        merges=merges or version >= MERGING_VERSION,
    )


def _resolved(parent: Path, pattern: str) -> list[Path]:
    absolute = pattern if pattern.startswith("/") else str(parent.parent / pattern)
    if "*" not in absolute:
        return [Path(absolute)]
    return [Path(found) for found in sorted(glob.glob(absolute))]
