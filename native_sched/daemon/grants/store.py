"""The grants on disk: a document for each below ROOT/grants, from which the next mgpud takes them over.

What cannot be written down is not done: admission, bind and the operator's changes are refused then.
Documents that cannot be read are set aside below ROOT/grants/unreadable. Their containers get no service, and
until they have ended nothing new is admitted, because what they hold of which card is not known.
"""

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from native_sched.daemon.grants import record as grant_record
from native_sched.daemon.grants.grants import Grant
from native_sched.daemon.log import LOG, Log
from native_sched.daemon.node import record_file
from native_sched.daemon.node.record_file import Prepared, Unreadable
from oci_specs.refusal import Refusal

KIND = "grant"
_SUFFIX = ".json"
_ASIDE = "unreadable"
# Beside a document that was set aside, once its container is gone.
_GONE, _GONE_MAX = ".gone", 16


class Found(NamedTuple):
    """The grants at the start; unreadable: nonces of those set aside, now or earlier."""

    grants: list[Grant]
    unreadable: frozenset[str]


def not_recorded(container: str, folder: str, error: OSError) -> Refusal:
    return Refusal(
        "not-recorded",
        f"mgpud cannot write down the grant of container {container} in {folder} ({error.strerror})",
        "make room there, or mount it writable, then try again",
    )


class Change:
    """Documents of grants as they will be, written and not yet in place."""

    def __init__(self, prepared: Sequence[Prepared]) -> None:
        self._prepared = prepared

    def commit(self) -> None:
        for each in self._prepared:
            each.commit()

    def abandon(self) -> None:
        for each in self._prepared:
            each.abandon()


class GrantStore:
    def __init__(self, folder: str, log: Log = LOG) -> None:
        """Makes the folder (mode 0700) if it is not there; OSError."""
        self.folder = folder
        self._aside_folder = os.path.join(folder, _ASIDE)
        self._log = log
        os.makedirs(folder, mode=0o700, exist_ok=True)

    def _path(self, nonce: str) -> str:
        return os.path.join(self.folder, nonce + _SUFFIX)

    def prepare(self, grants: Sequence[Grant]) -> Change:
        """Refusal, with nothing changed, when one of them cannot be written."""
        prepared: list[Prepared] = []
        for grant in grants:
            try:
                data = record_file.encode(KIND, grant_record.to_json(grant))
                prepared.append(Prepared(self._path(grant.nonce), data))
            except OSError as error:
                Change(prepared).abandon()
                raise not_recorded(grant.name, self.folder, error) from error
        return Change(prepared)

    def save(self, grant: Grant, **changed: Any) -> None:
        """Writes the grant down as it will be with these members; Refusal when that cannot be."""
        change = self.prepare([replace(grant, **changed)])
        try:
            change.commit()
        except OSError as error:
            raise not_recorded(grant.name, self.folder, error) from error

    def note(self, grant: Grant) -> None:
        """Saves an event, and goes on if that fails: the next mgpud would find it out anew."""
        try:
            self.save(grant)
        except Refusal as refusal:
            self._log.warning("grant-not-recorded", container=grant.container_id, why=refusal.message)

    def remove(self, grant: Grant) -> None:
        try:
            os.unlink(self._path(grant.nonce))
        except FileNotFoundError:
            pass
        except OSError as error:
            # The next mgpud finds nothing of it in the driver and tries again.
            self._log.warning("grant-record-not-removed", container=grant.container_id, why=error.strerror)

    def load(self) -> Found:
        """All grants of this boot, the oldest first. OSError when the folder cannot be read."""
        found: list[Grant] = []
        past = 0
        for name in sorted(os.listdir(self.folder)):
            path = os.path.join(self.folder, name)
            if name.endswith(record_file.UNFINISHED):
                self._drop(path)
            elif name.endswith(_SUFFIX):
                try:
                    grant = self._read(path, name)
                except (OSError, Unreadable) as error:
                    self._set_aside(path, name, error)
                    continue
                if grant is not None:
                    found.append(grant)
                else:
                    past += 1
                    self._drop(path)
        if past:
            self._log.info("grants-of-another-boot", count=past, what="forgotten")
        found.sort(key=lambda grant: grant.tenant)
        return Found(found, frozenset(name.removesuffix(_SUFFIX) for name in self._aside(_SUFFIX)))

    @staticmethod
    def _read(path: str, name: str) -> Grant | None:
        """None for one of another boot: no process is left of it."""
        boot, body = record_file.decode(KIND, record_file.read(path))
        if boot != record_file.boot_id():
            return None
        grant = grant_record.from_json(body)
        if grant.nonce + _SUFFIX != name:
            raise Unreadable("another grant's")
        return grant

    def _set_aside(self, path: str, name: str, error: Exception) -> None:
        self._log.error(
            "grant-unreadable", document=name, why=error, what=f"set aside in {self._aside_folder}"
        )
        try:
            os.makedirs(self._aside_folder, mode=0o700, exist_ok=True)
            os.rename(path, os.path.join(self._aside_folder, name))
        except OSError as failed:
            self._log.error("grant-not-set-aside", document=name, why=failed.strerror)

    def _aside(self, suffix: str) -> list[str]:
        try:
            return [name for name in os.listdir(self._aside_folder) if name.endswith(suffix)]
        except OSError:
            return []

    def forget_unreadable(self, nonce: str) -> None:
        """Sets a document aside whose container is gone; people may read it until there are too many."""
        path = os.path.join(self._aside_folder, nonce + _SUFFIX)
        try:
            os.rename(path, path + _GONE)
        except OSError:
            return
        for name in sorted(self._aside(_GONE))[:-_GONE_MAX]:
            self._drop(os.path.join(self._aside_folder, name))

    def _drop(self, path: str) -> None:
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass
        except OSError as error:
            self._log.warning("record-not-removed", file=path, why=error.strerror)
