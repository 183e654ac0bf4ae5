"""The claims that the node's DRA driver has prepared, and the share of the cards that a container gets by
them.

A document for each below ROOT/claims, from which the next mgpud knows them. What the variables of a container
name is checked here: the claim is prepared, and the container is of a pod that it is reserved for.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from native_sched.daemon.grants.grants import Grant
from native_sched.daemon.log import LOG, Log
from native_sched.daemon.node import record_file
from native_sched.daemon.node.record_file import Prepared, Unreadable
from oci_specs import identity
from oci_specs.claim import Claim, ClaimedRequest
from oci_specs.refusal import Refusal, quoted

KIND = "claim"
_SUFFIX = ".json"
# A container's id in a refusal, as engines abbreviate it.
_SHOWN_ID_CHARS = 12


@dataclass(frozen=True)
class Named:
    """A request of a claim that a container rightly names."""

    claim: Claim
    request: ClaimedRequest

    @property
    def key(self) -> str:
        """What a grant remembers of it."""
        return self.claim.value(self.request)


class Claims:
    """All prepared claims, by their uids. folder: where they are written down; grants: their holders."""

    def __init__(self, folder: str, grants: Iterable[Grant], log: Log = LOG) -> None:
        """Reads what the previous mgpud has left; OSError when the folder cannot be made or read."""
        self._folder = folder
        self._grants = grants
        self._log = log
        os.makedirs(folder, mode=0o700, exist_ok=True)
        self._claims: dict[str, Claim] = {}
        for name in sorted(os.listdir(folder)):
            self._load(os.path.join(folder, name))

    def __iter__(self) -> Iterator[Claim]:
        return iter(list(self._claims.values()))

    def prepare(self, claim: Claim) -> None:
        """Refusal, with nothing changed, when it cannot be written down or would change under a container."""
        known = self._claims.get(claim.uid)
        if known == claim:
            return
        if known is not None and replace(known, pods=claim.pods) != claim:
            self._refuse_in_use(known, "be given something else")
        try:
            Prepared(self._path(claim.uid), record_file.encode(KIND, claim.to_json())).commit()
        except OSError as error:
            raise Refusal(
                "not-recorded",
                f"mgpud cannot write down claim {claim} in {self._folder} ({error.strerror})",
                "make room there, or mount it writable, then try again",
            ) from error
        self._claims[claim.uid] = claim

    def unprepare(self, uid: str) -> None:
        """Forgets a claim, known or not; Refusal while a container has something by it."""
        claim = self._claims.get(uid)
        if claim is None:
            return
        self._refuse_in_use(claim, "be unprepared")
        with suppress(FileNotFoundError):
            try:
                os.unlink(self._path(uid))
            except PermissionError as error:
                self._log.warning("claim-record-not-removed", claim=claim, why=error.strerror)
        del self._claims[uid]

    def named(self, values: Sequence[str], annotations: Mapping[str, str]) -> list[Named]:
        """The requests that a container's variables name; Refusal for one that it may not have."""
        found = [self._named(value, annotations) for value in dict.fromkeys(values)]
        for one in found:
            self._refuse_shared_out(one)
        return found

    def _named(self, value: str, annotations: Mapping[str, str]) -> Named:
        claim = self._claims.get((value.split("/") + ["", ""])[2])
        known = {} if claim is None else {claim.value(request): request for request in claim.requests}
        if claim is None or value not in known:
            raise _refused(value, "no such claim is prepared on this node")
        if not any(
            identity.is_pod(annotations, namespace=claim.namespace, name=pod.name, uid=pod.uid)
            for pod in claim.pods
        ):
            raise _refused(value, f"claim {claim} is not reserved for the container's pod")
        return Named(claim, known[value])

    def _refuse_shared_out(self, named: Named) -> None:
        holders = [grant for grant in self._holders(named.key) if grant.state != "draining"]
        if len(holders) >= named.request.containers:
            raise Refusal(
                "claim-shared-out",
                f"request {named.request.name} of claim {named.claim} is for {_counted(named.request.containers)} "
                f"at a time, and {_shown(holders)} has it",
                "ask for as many containers as share it, or wait until that one ends",
            )

    def _refuse_in_use(self, claim: Claim, what: str) -> None:
        holders = [grant for request in claim.requests for grant in self._holders(claim.value(request))]
        if holders:
            raise Refusal(
                "claim-in-use",
                f"claim {claim} cannot {what}: {_shown(holders)} still holds what it has by it",
                "wait until that container has ended",
            )

    def _holders(self, key: str) -> list[Grant]:
        return [grant for grant in self._grants if key in grant.claims]

    def _path(self, uid: str) -> str:
        return os.path.join(self._folder, uid + _SUFFIX)

    def _load(self, path: str) -> None:
        """What is of another boot is forgotten: kubelet has it prepared anew."""
        try:
            if path.endswith(_SUFFIX):
                boot, body = record_file.decode(KIND, record_file.read(path))
                if boot == record_file.boot_id():
                    claim = Claim.from_json(body)
                    self._claims[claim.uid] = claim
                    return
        except (OSError, Unreadable, KeyError, TypeError) as error:
            self._log.error("claim-unreadable", document=path, why=error, what="its driver tells it again")
        with suppress(OSError):
            os.unlink(path)


def _refused(value: str, why: str) -> Refusal:
    return Refusal(
        "no-claim",
        f"the container names the claim {quoted(value)}, and {why}",
        "leave MGPU_CLAIM_ variables to the DRA driver, and list the claim in the container's resources.claims",
    )


def _shown(holders: Sequence[Grant]) -> str:
    first = holders[0].identity
    return f"container {first.container[:_SHOWN_ID_CHARS] if first.pod is None else f'{first.pod}/{first.container}'}"


def _counted(containers: int) -> str:
    return "1 container" if containers == 1 else f"{containers} containers"
