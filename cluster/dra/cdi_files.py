"""Prepared claims as CDI devices. A device brings a variable with the claim's name and nothing else: what
there is behind the name mgpud knows, and asks who the container is.
"""

import json
import os
from contextlib import suppress
from pathlib import Path

from cluster.dra import DRIVER
from oci_specs.claim import Claim

KIND = f"{DRIVER}/claim"
# The first version in which names may begin with a digit, as a uid does (CDI, SPEC.md).
_VERSION = "0.5.0"
_PREFIX, _SUFFIX = f"{DRIVER}-claim-", ".json"


class CdiFiles:
    """A file for each claim, in a folder where the container engine looks for CDI specs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, claim: Claim) -> dict[str, str]:
        """The CDI device for each request of the claim; OSError when the file cannot be written."""
        names = {request.name: f"{claim.uid}-{number}" for number, request in enumerate(claim.requests)}
        spec = {
            "cdiVersion": _VERSION,
            "kind": KIND,
            "devices": [
                {"name": name, "containerEdits": {"env": ["=".join(claim.variable(number))]}}
                for number, name in enumerate(names.values())
            ],
        }
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._path(claim.uid)
        # Engines read whatever ends in .json, whole or not.
        unfinished = path.with_suffix(".new")
        unfinished.write_text(json.dumps(spec))
        os.replace(unfinished, path)
        return {request: f"{KIND}={name}" for request, name in names.items()}

    def remove(self, uid: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(self._path(uid))

    def claims(self) -> dict[str, tuple[str, str]]:
        """(Namespace, name) of each claim that has a file, by its uid."""
        found = {}
        for path in self._folder.glob(f"{_PREFIX}*{_SUFFIX}"):
            uid = path.name.removeprefix(_PREFIX).removesuffix(_SUFFIX)
            with suppress(OSError, ValueError, LookupError, TypeError, AttributeError):
                variable = json.loads(path.read_text())["devices"][0]["containerEdits"]["env"][0]
                namespace, name, _uid, _request = variable.partition("=")[2].split("/")
                found[uid] = namespace, name
        return found

    def _path(self, uid: str) -> Path:
        return self._folder / f"{_PREFIX}{uid}{_SUFFIX}"
