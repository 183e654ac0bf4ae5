"""How many containers were refused at admission, by the code of the refusal."""

from collections.abc import Mapping
from typing import Any

from native_sched.daemon.control.server import Peer, Reply, Verb
from native_sched.daemon.log import LOG, Log
from oci_specs import identity
from oci_specs.refusal import Refusal

OTHER = "other"
# What admission may say no with. They are all told from the first scrape on: a series that begins with its
# first event hides that event from a rate.
CODES = (
    "ambiguous-card",
    "bad-cdi-spec",
    "bad-value",
    "cannot-evict",
    "card-drained",
    "card-full",
    "card-occupied",
    "card-too-small",
    "cdi-capability",
    "cdi-conflict",
    "claim-and-keys",
    "claim-in-use",
    "claim-shared-out",
    "claim-too-small",
    "claims-disagree",
    "container-exists",
    "core-full",
    "core-too-large",
    "driver-lost",
    "environment-in-pod",
    "grant-lost",
    "indivisible",
    "keys-disagree",
    "memory-full",
    "memory-too-small",
    "no-capability",
    "no-cards",
    "no-cdi-device",
    "no-claim",
    "no-holder",
    "no-memory-to-reclaim",
    "not-recorded",
    "not-scheduled",
    "not-served",
    "online-reclaimable",
    "policy-conflict",
    "position-unknown",
    "reach-beside-grant",
    "reach-without-grant",
    "same-gpu",
    "too-few-cards",
    "unknown-card",
    "unknown-key",
    OTHER,
)


class Refusals:
    """Counts them, and logs each: of a launcher that asks again while another container ends, the first."""

    def __init__(self, log: Log = LOG) -> None:
        self._log = log
        self._last: tuple[int, str, str] | None = None
        self.counts = dict.fromkeys(CODES, 0)

    def counted(self, admit: Verb) -> Verb:
        """The verb, whose refusals are counted."""

        def answer(message: Mapping[str, Any], peer: Peer) -> Reply:
            try:
                return admit(message, peer)
            except Refusal as refusal:
                last, self._last = self._last, (peer.pid, message["container_id"], refusal.code)
                if self._last == last:
                    raise
                self.counts[refusal.code if refusal.code in self.counts else OTHER] += 1
                self._log.info(
                    "refused",
                    container=message["container_id"],
                    code=refusal.code,
                    why=refusal.message,
                    hint=refusal.hint,
                    **_pod(message),
                )
                raise

        return answer


def _pod(message: Mapping[str, Any]) -> dict[str, str]:
    """Whose container it is, where there is a pod: its id says nothing to anyone once it is refused."""
    who = identity.identify(message["annotations"], message["container_id"])
    if not who.pod:
        return {}
    return {"pod": who.pod, "namespace": who.namespace or "", "name": who.container}
